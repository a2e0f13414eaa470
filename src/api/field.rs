//! Paths into a JSON answer, as in `choices[0].text`.
//!
//! ```text
//! path  = step *( "." key / index )
//! step  = key / index
//! key   = 1*( any character but "." "[" "]" )
//! index = "[" 1*DIGIT "]"
//! ```

use loadgen_shards::answer::PathStep;

/// Parses a path; the error is a fragment for after "--response-field got `...`; ".
pub fn parse_field(text: &str) -> Result<Vec<PathStep>, String> {
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() || steps.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let digits = after.split_once(']').filter(|(digits, _)| {
                !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
            });
            let index = digits.and_then(|(digits, _)| digits.parse().ok());
            let (Some(index), Some((_, after))) = (index, digits) else {
                return Err(wrong(text, rest, "a number and `]`"));
            };
            steps.push(PathStep::Index(index));
            rest = after;
        } else {
            let is_first = steps.is_empty();
            let after = if is_first { Some(rest) } else { rest.strip_prefix('.') };
            let Some(after) = after else {
                return Err(wrong(text, rest, "`.` or `[`"));
            };
            let (key, after) = after.split_at(after.find(['.', '[', ']']).unwrap_or(after.len()));
            if key.is_empty() {
                return Err(wrong(text, after, "the name of a member"));
            }
            steps.push(PathStep::Key(key.into()));
            rest = after;
        }
    }
    Ok(steps)
}

fn wrong(text: &str, rest: &str, allowed: &str) -> String {
    let at = text.len() - rest.len() + 1;
    format!("at position {at} {allowed} is needed; a path looks like choices[0].text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_its_members_and_indices_in_order() {
        let key = |name: &str| PathStep::Key(name.into());
        for (text, steps) in [
            ("text", vec![key("text")]),
            ("choices[0].text", vec![key("choices"), PathStep::Index(0), key("text")]),
            ("a.b.c", vec![key("a"), key("b"), key("c")]),
            ("[2][10].x", vec![PathStep::Index(2), PathStep::Index(10), key("x")]),
            ("odd key-1.ä", vec![key("odd key-1"), key("ä")]),
            ("0", vec![key("0")]),
        ] {
            assert_eq!(parse_field(text), Ok(steps), "{text}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused_where_it_goes_wrong() {
        for (text, says) in [
            ("", "position 1 the name"),
            (".a", "position 1 the name"),
            ("a.", "position 3 the name"),
            ("a..b", "position 3 the name"),
            ("a.[0]", "position 3 the name"),
            ("a[]", "position 2 a number"),
            ("a[x]", "position 2 a number"),
            ("a[-1]", "position 2 a number"),
            ("a[+1]", "position 2 a number"),
            ("a[0", "position 2 a number"),
            ("a[99999999999999999999]", "position 2 a number"),
            ("a[0]b", "position 5 `.` or `[`"),
            ("a]", "position 2 `.` or `[`"),
        ] {
            let error = parse_field(text).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
