//! The choice of cores and timer, over tables of hosts and needs.

use super::*;

fn host(allowed: &str, quota: Option<f64>) -> Host {
    let allowed = parse_list(allowed).expect("a list");
    Host { online: allowed.len(), allowed, quota }
}

fn need(request: CoreRequest, connections: Option<u32>, is_local: bool) -> Need {
    Need {
        request,
        connections,
        max_connections: None,
        timer: None,
        is_local,
        is_embedded: false,
        spin: false,
    }
}

#[test]
fn lists_are_parsed_sorted_and_written_back() {
    for (text, cores, written) in [
        ("0", vec![0], "0"),
        ("0-3", vec![0, 1, 2, 3], "0-3"),
        ("0,2,4", vec![0, 2, 4], "0,2,4"),
        ("0-3,8", vec![0, 1, 2, 3, 8], "0-3,8"),
        ("8,0-1", vec![0, 1, 8], "0-1,8"),
        ("5-5", vec![5], "5"),
        ("8191", vec![8191], "8191"),
    ] {
        assert_eq!(parse_list(text), Ok(cores.clone()), "{text}");
        assert_eq!(list_text(&cores), written);
    }
    assert_eq!(list_text(&[]), "");
}

#[test]
fn odd_lists_are_refused_with_the_reason() {
    for (text, says) in [
        ("", "no core"),
        (",", "no core"),
        ("0,", "no core"),
        ("-1", "no core"),
        ("1-", "no core"),
        ("a", "no core"),
        ("0 ,1", "no core"),
        ("0-1-2", "no core"),
        ("0..3", "no core"),
        ("+1", "no core"),
        ("8192", "no core"),
        ("0-4000000000", "no core"),
        ("3-1", "backwards"),
        ("0,0", "core 0 twice"),
        ("0-3,2", "core 2 twice"),
    ] {
        let error = parse_list(text).expect_err(text);
        assert!(error.contains(says), "{text:?}: {error}");
    }
    let many = vec!["0-8191"; 100_000].join(",");
    assert!(parse_list(&many).is_err(), "a long list ends early");
}

#[test]
fn mask_is_what_is_allowed_and_online() {
    let status = "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\nMems_allowed:\t1\n";
    assert_eq!(allowed_in(status, "0-1\n"), [0, 1]);
    assert_eq!(allowed_in(status, ""), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(allowed_in("Cpus_allowed_list:\t1,3\n", "0-7\n"), [1, 3]);
    assert!(allowed_in("", "0-1").is_empty());
}

#[test]
fn default_is_mask_within_quota_and_half_beside_the_endpoint() {
    for (allowed, quota, connections, is_local, cores, reason) in [
        ("0-3", None, None, false, "0-3", "all 4 allowed cores"),
        ("0", None, None, false, "0", "the only allowed core"),
        ("2,5,7", None, None, false, "2,5,7", "all 3 allowed cores"),
        ("0-15", Some(4.5), None, false, "0-3", "4 of 16 allowed cores, as the CPU quota is 4.5"),
        ("0-15", Some(0.5), None, false, "0", "1 of 16 allowed cores, as the CPU quota is 0.5"),
        ("0-3", Some(64.0), None, false, "0-3", "all 4 allowed cores"),
        ("0-3", None, None, true, "0-1", "2 of 4 allowed cores, as the endpoint is on this host"),
        ("0-2", None, None, true, "0", "1 of 3 allowed cores, as the endpoint is on this host"),
        ("0-1", None, None, true, "0", "1 of 2 allowed cores, as the endpoint is on this host"),
        ("7", None, None, true, "7", "the only allowed core"),
        (
            "0-15",
            Some(2.0),
            None,
            true,
            "0",
            "1 of 16 allowed cores, as the CPU quota is 2 and the endpoint is on this host",
        ),
        (
            "0-15",
            None,
            Some(64),
            false,
            "0-7",
            "8 of 16 allowed cores, as a shard is worth 8 connections",
        ),
        (
            "0-15",
            None,
            Some(65),
            false,
            "0-8",
            "9 of 16 allowed cores, as a shard is worth 8 connections",
        ),
        (
            "0-15",
            None,
            Some(1),
            false,
            "0",
            "1 of 16 allowed cores, as a shard is worth 8 connections",
        ),
        ("0-15", None, Some(1000), false, "0-15", "all 16 allowed cores"),
    ] {
        let choice =
            choose(&host(allowed, quota), &need(CoreRequest::Default, connections, is_local))
                .expect("a default always fits");
        assert_eq!(
            list_text(&choice.cores),
            cores,
            "{allowed} {quota:?} {connections:?} {is_local}"
        );
        assert_eq!(choice.reason, reason);
    }
}

#[test]
fn half_of_the_cores_never_holds_the_last() {
    for count in 2..=64 {
        let host = host(&format!("0-{}", count - 1), None);
        let choice = choose(&host, &need(CoreRequest::Default, None, true)).expect("fits");
        assert!(!choice.cores.contains(&(count - 1)), "{count}");
        assert!(choice.notices.is_empty(), "{count}");
    }
}

#[test]
fn what_the_user_asks_for_is_taken_or_refused_with_what_is_allowed() {
    let four = host("0-3", None);
    let cores = |request, connections| {
        choose(&four, &need(request, connections, false)).map(|choice| choice.cores)
    };
    assert_eq!(cores(CoreRequest::List(vec![1, 3]), None), Ok(vec![1, 3]));
    assert_eq!(cores(CoreRequest::Count(3), None), Ok(vec![0, 1, 2]));
    // Asked for is asked for: 8 connections a shard is only the default.
    assert_eq!(cores(CoreRequest::Count(4), Some(4)), Ok(vec![0, 1, 2, 3]));
    for (request, says) in [
        (CoreRequest::List(vec![0, 4, 5, 7]), "may not use 4-5,7; allowed here: 0-3"),
        (CoreRequest::Count(5), "allowed: 1 to 4"),
    ] {
        let error = cores(request, None).expect_err(says);
        assert_eq!(error.exit_code(), 3);
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn fewer_connections_than_shards_start_fewer_shards_and_say_so() {
    let choice =
        choose(&host("0-15", None), &need(CoreRequest::Count(16), Some(6), false)).expect("fits");
    assert_eq!(list_text(&choice.cores), "0-5");
    assert_eq!(choice.notices, ["6 connections for 16 cores: only 6 shards start"]);
}

#[test]
fn spin_is_refused_below_the_quota_and_beside_the_endpoint_and_kept_elsewhere() {
    for (allowed, quota, request, is_local, spin, notice) in [
        ("0-3", None, CoreRequest::Default, false, true, None),
        ("0-3", None, CoreRequest::Default, true, true, None),
        ("0-3", Some(2.0), CoreRequest::Default, false, true, None),
        ("0-3", Some(2.0), CoreRequest::Count(4), false, false, Some("throttle")),
        ("0-3", Some(0.5), CoreRequest::Default, false, false, Some("throttle")),
        ("0-3", None, CoreRequest::Count(4), true, false, Some("no core of its own")),
        ("0-3", None, CoreRequest::Count(3), true, true, None),
        ("0-3", None, CoreRequest::Count(4), false, true, None),
        ("0", None, CoreRequest::Default, true, false, Some("no core of its own")),
    ] {
        let need = Need { spin: true, ..need(request, None, is_local) };
        let choice = choose(&host(allowed, quota), &need).expect("fits");
        assert_eq!(choice.timer == Timer::Inline, spin, "{allowed} {quota:?} {need:?}");
        match notice {
            Some(notice) => {
                let notices = choice.notices.join("\n");
                assert!(notices.contains(notice) && notices.contains("--spin is off"), "{notices}");
            }
            None => assert!(choice.notices.is_empty(), "{:?}", choice.notices),
        }
    }
}

fn open(request: CoreRequest, timer: TimerRequest) -> Need {
    Need { timer: Some(timer), ..need(request, None, false) }
}

#[test]
fn a_shard_of_an_open_loop_is_worth_64_connections() {
    for (connections, max_connections, cores, because) in [
        (None, None, "0-15", "all 16 allowed cores"),
        (None, Some(64), "0", "as a shard is worth 64 connections"),
        (None, Some(65), "0-1", "as a shard is worth 64 connections"),
        (Some(8), Some(1024), "0-7", "as each needs a connection"),
        (Some(8), None, "0-7", "as each needs a connection"),
        (Some(64), Some(10_000), "0-15", "all 16 allowed cores"),
    ] {
        let need =
            Need { connections, max_connections, ..open(CoreRequest::Default, TimerRequest::Auto) };
        let choice = choose(&host("0-15", None), &need).expect("fits");
        assert_eq!(list_text(&choice.cores), cores, "{connections:?} {max_connections:?}");
        assert!(choice.reason.contains(because), "{}", choice.reason);
        assert!(choice.notices.is_empty(), "{:?}", choice.notices);
    }
}

#[test]
fn timer_is_hybrid_unless_asked_for_or_without_whole_cores() {
    use TimerRequest::{Auto, Dedicated, Hybrid, Inline, Sleep};
    for (allowed, quota, request, is_local, asked, timer, reason) in [
        ("0-3", None, CoreRequest::Default, false, Auto, Timer::Hybrid, "the default"),
        ("0-3", None, CoreRequest::Default, true, Auto, Timer::Hybrid, "the default"),
        ("0-3", None, CoreRequest::Default, true, Inline, Timer::Inline, "--timer inline"),
        ("0-3", None, CoreRequest::Default, false, Sleep, Timer::Sleep, "--timer sleep"),
        ("0-3", Some(2.0), CoreRequest::Default, false, Auto, Timer::Hybrid, "the default"),
        ("0-3", Some(2.0), CoreRequest::Count(4), false, Auto, Timer::Sleep, "CPU quota"),
        ("0-3", Some(0.5), CoreRequest::Default, false, Hybrid, Timer::Sleep, "CPU quota"),
        ("0-3", None, CoreRequest::Count(4), true, Inline, Timer::Sleep, "shares the cores"),
        ("0-3", None, CoreRequest::Count(4), false, Inline, Timer::Inline, "--timer inline"),
        ("0", None, CoreRequest::Default, true, Auto, Timer::Sleep, "shares the cores"),
        (
            "0-3",
            Some(3.5),
            CoreRequest::Count(3),
            false,
            Dedicated { core: None },
            Timer::Sleep,
            "CPU quota",
        ),
    ] {
        let need = Need { is_local, ..open(request, asked) };
        let choice = choose(&host(allowed, quota), &need).expect("fits");
        assert_eq!(choice.timer, timer, "{allowed} {quota:?} {need:?}");
        assert!(choice.timer_reason.contains(reason), "{}", choice.timer_reason);
        let notices = choice.notices.join("\n");
        let is_replaced = !matches!(asked, Auto | Sleep) && timer == Timer::Sleep;
        assert_eq!(notices.contains("replaced by sleep"), is_replaced, "{notices}");
    }
}

#[test]
fn dedicated_timer_has_a_core_beside_the_shards() {
    let dedicated = |core| TimerRequest::Dedicated { core };
    let list = |text: &str| CoreRequest::List(parse_list(text).expect("a list"));
    for (allowed, quota, request, is_local, core, shards, timer) in [
        ("0-3", None, CoreRequest::Default, false, None, "0-2", 3),
        ("0-3", None, CoreRequest::Default, false, Some(1), "0,2-3", 1),
        ("0-7", None, CoreRequest::Default, true, None, "0-2", 3),
        ("0-1", None, CoreRequest::Default, false, None, "0", 1),
        ("0-1", None, CoreRequest::Default, true, None, "0", 1),
        ("0-1", None, CoreRequest::Default, true, Some(0), "1", 0),
        ("0-15", Some(4.0), CoreRequest::Default, false, None, "0-2", 3),
        ("0-3", None, list("1,3"), false, None, "1,3", 0),
        ("0-3", None, list("1,3"), false, Some(2), "1,3", 2),
        ("0-3", None, CoreRequest::Count(2), false, Some(0), "1-2", 0),
        ("0-3", None, CoreRequest::Count(3), false, None, "0-2", 3),
    ] {
        let need = Need { is_local, ..open(request, dedicated(core)) };
        let choice = choose(&host(allowed, quota), &need).expect("fits");
        assert_eq!(list_text(&choice.cores), shards, "{allowed} {need:?}");
        assert_eq!(choice.timer, Timer::Dedicated { core: timer }, "{allowed} {need:?}");
        let is_crowded = is_local && allowed == "0-1";
        assert_eq!(choice.notices.len(), usize::from(is_crowded), "{:?}", choice.notices);
    }
}

#[test]
fn no_core_for_the_timer_is_an_error_that_says_what_to_type() {
    let dedicated = |core| TimerRequest::Dedicated { core };
    for (allowed, request, core, code, says) in [
        ("0-3", CoreRequest::List(vec![0, 1]), Some(1), 2, "--timer-core got `1`"),
        ("0-3", CoreRequest::List(vec![0, 1]), Some(1), 2, "that --cores does not name"),
        ("0-3", CoreRequest::Default, Some(4), 3, "allowed here: 0-3"),
        ("0", CoreRequest::Default, Some(0), 3, "--timer hybrid"),
        ("0", CoreRequest::Default, None, 3, "--timer hybrid"),
        ("0-3", CoreRequest::Count(4), None, 3, "--cores 0-2, or -t 3"),
        ("0-3", CoreRequest::List(vec![0, 1, 2, 3]), None, 3, "--cores 0-2, or -t 3"),
        ("0-3", CoreRequest::Count(4), Some(3), 3, "allowed: 1 to 3"),
    ] {
        let need = open(request, dedicated(core));
        let error = choose(&host(allowed, None), &need).expect_err(says);
        assert_eq!(error.exit_code(), code, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn the_endpoint_gets_what_the_shards_leave_within_the_quota() {
    for (allowed, quota, shards, cores, is_shared) in [
        ("0-1", None, "0", "1", false),
        ("0-3", None, "0-1", "2-3", false),
        ("0-3", None, "1,3", "0,2", false),
        ("0-3", None, "0-3", "3", true),
        ("7", None, "7", "7", true),
        ("0-15", Some(4.0), "0-1", "14-15", false),
        ("0-15", Some(1.0), "0", "15", false),
    ] {
        let got = endpoint_cores(&host(allowed, quota), &parse_list(shards).expect("a list"));
        assert_eq!(
            (list_text(&got.cores).as_str(), got.is_shared),
            (cores, is_shared),
            "{allowed} {shards}"
        );
    }
}

#[test]
fn loopback_is_local_and_a_documentation_address_is_not() {
    for address in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "0.0.0.0"] {
        assert!(is_local(address.parse().expect("an address")), "{address}");
    }
    assert!(!is_local("192.0.2.1".parse().expect("an address")));
}

#[test]
fn this_host_can_be_read() {
    let host = Host::read().expect("tests run where /proc is mounted");
    assert!(host.budget() >= 1 && host.budget() <= host.allowed.len());
}
