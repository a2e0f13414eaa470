//! JUnit XML, as CI systems read it: one test case for each `--fail-if` and later arm.

use std::fmt::Write;

use super::gate::{Judgement, Outcome};
use crate::report::printable;

/// The whole file. What is undefined or not to be believed is an error there, so that it is never
/// taken for a pass.
pub fn junit(judgements: &[Judgement]) -> String {
    let count = |is_counted: fn(Outcome) -> bool| {
        judgements.iter().filter(|judgement| is_counted(judgement.outcome)).count()
    };
    let failures = count(|outcome| outcome == Outcome::Failed);
    let errors = count(|outcome| matches!(outcome, Outcome::Undefined | Outcome::Untrusted));
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuites>\n\
         <testsuite name=\"loadgen-uring compare\" tests=\"{}\" failures=\"{failures}\" \
         errors=\"{errors}\">\n",
        judgements.len()
    );
    for judgement in judgements {
        text.push_str(&case(judgement));
    }
    text.push_str("</testsuite>\n</testsuites>\n");
    text
}

fn case(judgement: &Judgement) -> String {
    let (name, arm) = (escaped(&judgement.expression), escaped(&judgement.arm));
    let message = escaped(&format!("{}: {}", judgement.outcome.name(), judgement.detail));
    let mut text = format!("<testcase classname=\"{arm}\" name=\"{name}\">");
    match judgement.outcome {
        Outcome::Passed => write!(text, "<system-out>{message}</system-out>"),
        Outcome::Failed => write!(text, "<failure message=\"{message}\"/>"),
        Outcome::Undefined | Outcome::Untrusted => write!(text, "<error message=\"{message}\"/>"),
    }
    .expect("a string takes any text");
    text.push_str("</testcase>\n");
    text
}

/// Text for an attribute or an element: no character that XML 1.0 has no place for, none that it
/// would read as markup.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('.'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judgement(expression: &str, arm: &str, outcome: Outcome) -> Judgement {
        let detail = "+15.0 % (2.30 ms against 2 ms)".to_owned();
        Judgement { expression: expression.into(), arm: arm.into(), outcome, detail }
    }

    #[test]
    fn each_outcome_has_its_element_and_the_suite_its_counts() {
        let text = junit(&[
            judgement("p99>+10%", "B", Outcome::Failed),
            judgement("qps<-5%", "B", Outcome::Passed),
            judgement("p99.9>+10%", "C", Outcome::Undefined),
            judgement("p99>1ms", "C", Outcome::Untrusted),
        ]);
        assert_eq!(
            text,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n\
             <testsuite name=\"loadgen-uring compare\" tests=\"4\" failures=\"1\" errors=\"2\">\n\
             <testcase classname=\"B\" name=\"p99&gt;+10%\">\
             <failure message=\"failed: +15.0 % (2.30 ms against 2 ms)\"/></testcase>\n\
             <testcase classname=\"B\" name=\"qps&lt;-5%\">\
             <system-out>passed: +15.0 % (2.30 ms against 2 ms)</system-out></testcase>\n\
             <testcase classname=\"C\" name=\"p99.9&gt;+10%\">\
             <error message=\"undefined: +15.0 % (2.30 ms against 2 ms)\"/></testcase>\n\
             <testcase classname=\"C\" name=\"p99&gt;1ms\">\
             <error message=\"untrusted: +15.0 % (2.30 ms against 2 ms)\"/></testcase>\n\
             </testsuite>\n</testsuites>\n"
        );
    }

    #[test]
    fn a_hostile_name_stays_a_name() {
        let hostile = "\"/><!--]]>&amp;'\u{1b}[2J\u{0}\n\u{ffff}\u{202e}";
        assert_eq!(escaped(hostile), "&quot;/&gt;&lt;!--]]&gt;&amp;amp;&apos;.[2J....");
        let text = junit(&[judgement("p99>1ms", hostile, Outcome::Failed)]);
        // Markup of ours only: the prolog, begin and end of three elements, and an empty one.
        assert_eq!(text.matches('<').count(), 8, "{text}");
        assert_eq!(text.matches('>').count(), 8, "{text}");
    }
}
