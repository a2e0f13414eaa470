//! The CPU quota of the cgroups above this process, v2 (`cpu.max`) and v1 (`cpu.cfs_quota_us`),
//! pure over the texts of `/proc/self/cgroup`, `/proc/self/mountinfo` and the files themselves
//! ([`cgroups(7)`]).
//!
//! A limit anywhere on the way up binds, so every level is read and the tightest counts. Hosts that
//! mount both hierarchies keep the CPU controller in one of them; reading both finds it.
//!
//! [`cgroups(7)`]: https://man7.org/linux/man-pages/man7/cgroups.7.html

use std::path::{Path, PathBuf};

/// The tightest CPU quota in cores; `None`: no limit, or nothing can be read.
pub fn quota(cgroup: &str, mountinfo: &str, read: impl Fn(&Path) -> Option<String>) -> Option<f64> {
    let v2 = levels(cgroup, mountinfo, None).into_iter().filter_map(|level| {
        let text = read(&level.join("cpu.max"))?;
        let (quota, period) = text.trim().split_once(' ')?;
        cores(quota, period)
    });
    let v1 = levels(cgroup, mountinfo, Some("cpu")).into_iter().filter_map(|level| {
        let quota = read(&level.join("cpu.cfs_quota_us"))?;
        let period = read(&level.join("cpu.cfs_period_us"))?;
        cores(quota.trim(), period.trim())
    });
    v2.chain(v1).min_by(f64::total_cmp)
}

/// `max` and -1 are no quota.
fn cores(quota_us: &str, period_us: &str) -> Option<f64> {
    let quota_us: f64 = quota_us.parse::<u64>().ok()? as f64;
    let period_us: f64 = period_us.parse::<u64>().ok()? as f64;
    (quota_us > 0.0 && period_us > 0.0).then(|| quota_us / period_us)
}

/// The directories of our cgroup and of all above it that this process can see. `controller`: a v1
/// hierarchy by the name of its controller; `None`: the v2 hierarchy.
fn levels(cgroup: &str, mountinfo: &str, controller: Option<&str>) -> Vec<PathBuf> {
    let Some(path) = cgroup.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_ours = match controller {
            Some(name) => controllers.split(',').any(|controller| controller == name),
            None => id == "0" && controllers.is_empty(),
        };
        is_ours.then_some(path)
    }) else {
        return Vec::new();
    };
    let Some((root, mount)) = mountinfo.lines().find_map(|line| mount_of(line, controller)) else {
        return Vec::new();
    };
    // The mount shows the hierarchy from `root` down. A path outside it (a cgroup namespace entered
    // from outside shows `/..`) leaves only the mount point itself.
    let below = Path::new(path).strip_prefix(root).ok();
    let below = below.filter(|below| below.components().all(|part| part.as_os_str() != ".."));
    let deepest = Path::new(mount).join(below.unwrap_or(Path::new("")));
    deepest
        .ancestors()
        .take_while(|level| level.starts_with(mount))
        .map(Path::to_path_buf)
        .collect()
}

/// Root and mount point of a line of mountinfo, if it mounts the hierarchy in question
/// ([`proc_pid_mountinfo(5)`]).
///
/// [`proc_pid_mountinfo(5)`]: https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html
fn mount_of<'a>(line: &'a str, controller: Option<&str>) -> Option<(&'a str, &'a str)> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mut filesystem = filesystem.split(' ');
    let (kind, _source, options) = (filesystem.next()?, filesystem.next()?, filesystem.next()?);
    let is_ours = match controller {
        Some(name) => kind == "cgroup" && options.split(',').any(|option| option == name),
        None => kind == "cgroup2",
    };
    let mut fields = mount.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    is_ours.then_some((root, point))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &str = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n\
                      34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const V1_JOINT: &str =
        "33 31 0:30 /docker/x /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n";
    const HYBRID: &str = "2:cpuacct:/other\n1:cpu:/jobs/a\n0::/jobs/a\n";

    /// The quota with these files (path below /sys/fs/cgroup, text) and no others.
    fn with_files(cgroup: &str, mountinfo: &str, files: &[(&str, &str)]) -> Option<f64> {
        quota(cgroup, mountinfo, |path| {
            let name =
                path.strip_prefix("/sys/fs/cgroup").expect("nothing above the mount is read");
            let found = files.iter().find(|(file, _)| Path::new(file) == name);
            found.map(|(_, text)| text.to_string())
        })
    }

    #[test]
    fn the_tightest_cpu_max_on_the_way_up_counts() {
        for (cgroup, files, expected) in [
            ("0::/a/b\n", vec![("a/b/cpu.max", "max 100000\n")], None),
            ("0::/a/b\n", vec![("a/b/cpu.max", "250000 100000\n")], Some(2.5)),
            (
                "0::/a/b\n",
                vec![("a/b/cpu.max", "800000 100000\n"), ("a/cpu.max", "150000 100000\n")],
                Some(1.5),
            ),
            (
                "0::/a/b\n",
                vec![("a/b/cpu.max", "50000 100000\n"), ("a/cpu.max", "150000 100000\n")],
                Some(0.5),
            ),
            // A container sees its own cgroup as the root.
            ("0::/\n", vec![("cpu.max", "400000 100000\n")], Some(4.0)),
            // A process outside the root of its cgroup namespace.
            ("0::/../../x\n", vec![("cpu.max", "1000 1000\n")], Some(1.0)),
            ("0::/a\n", vec![("a/cpu.max", "many few\n")], None),
            ("0::/a\n", vec![("a/cpu.max", "max\n")], None),
            ("0::/a\n", vec![("a/cpu.max", "100 0\n")], None),
            ("0::/a\n", vec![("a/cpu.max", "0 100\n")], None),
            ("0::/a\n", vec![], None),
            ("::\n:\n\nx\n", vec![("cpu.max", "100 100\n")], None),
            ("", vec![("cpu.max", "100 100\n")], None),
        ] {
            assert_eq!(with_files(cgroup, V2, &files), expected, "{cgroup:?} {files:?}");
        }
        let files = [("a/cpu.max", "100 100\n")];
        assert_eq!(with_files("0::/a\n", "- - -\n\nx - cgroup2\n", &files), None, "no mount");
    }

    #[test]
    fn the_cfs_quota_of_version_1_counts_too() {
        let own =
            [("cpu/jobs/a/cpu.cfs_quota_us", "-1\n"), ("cpu/jobs/a/cpu.cfs_period_us", "100000\n")];
        let above =
            [("cpu/jobs/cpu.cfs_quota_us", "300000\n"), ("cpu/jobs/cpu.cfs_period_us", "100000\n")];
        assert_eq!(with_files(HYBRID, V1, &own), None, "-1 is no limit");
        assert_eq!(with_files(HYBRID, V1, &[own, above].concat()), Some(3.0));
        // Both hierarchies are read: the controller may be in either.
        let unified = [("unified/jobs/a/cpu.max", "200000 100000\n")];
        assert_eq!(with_files(HYBRID, V1, &[&own[..], &above, &unified].concat()), Some(2.0));
        let foreign = [("cpu/other/cpu.cfs_quota_us", "1"), ("cpu/other/cpu.cfs_period_us", "1")];
        assert_eq!(with_files("2:cpuacct:/other\n", V1, &foreign), None, "cpuacct is not cpu");
        let joint = [
            ("cpu,cpuacct/inner/cpu.cfs_quota_us", "200000"),
            ("cpu,cpuacct/inner/cpu.cfs_period_us", "100000"),
        ];
        let below_root = with_files("4:cpu,cpuacct:/docker/x/inner\n", V1_JOINT, &joint);
        assert_eq!(below_root, Some(2.0), "the mount shows the hierarchy from /docker/x down");
    }
}
