//! Answers whose tokens the endpoint has not counted: their texts wait in a file without a name,
//! and are counted once the run is over.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use loadgen_shards::phase::Goals;
use loadgen_shards::record::Record;
use loadgen_shards::recorder::AnswerTimes;

use crate::snapshot::{CountedOutput, Snapshot};
use crate::tokenizer::Tokenizer;

/// Texts on their way to be counted, written by the thread of the records.
#[derive(Debug)]
pub struct Uncounted {
    file: BufWriter<File>,
    /// What a good answer keeps.
    goals: Option<Goals>,
    answers: u64,
}

/// One answer of the file.
struct Output {
    phase: u32,
    /// All but the number of tokens.
    figures: CountedOutput,
    text: String,
}

impl Uncounted {
    /// An empty file in a folder; nobody else sees it, and it is gone with us.
    pub fn new(folder: &Path, goals: Option<Goals>) -> io::Result<Uncounted> {
        let path = folder.join(format!(".outputs-{}.tmp", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        fs::remove_file(&path)?;
        Ok(Uncounted { file: BufWriter::new(file), goals, answers: 0 })
    }

    /// How many there are.
    pub fn answers(&self) -> u64 {
        self.answers
    }

    /// Keeps the answer of a record, if it is one to count.
    pub fn keep(&mut self, record: &Record) -> io::Result<()> {
        let (true, Some(text)) = (record.is_uncounted, &record.text) else { return Ok(()) };
        let facts = &record.facts;
        let times = AnswerTimes::of(facts, record.stamps.complete_ns);
        // Undecided: whether it is good hangs on its TPOT alone.
        let is_good_but_for_tpot =
            self.goals.is_some_and(|goals| goals.kept(&record.stamps, Some(&times)).is_none());
        self.answers += 1;
        let file = &mut self.file;
        file.write_all(&record.phase.to_le_bytes())?;
        file.write_all(&facts.first_token_ns.to_le_bytes())?;
        file.write_all(&facts.last_token_ns.to_le_bytes())?;
        file.write_all(&facts.instants.to_le_bytes())?;
        file.write_all(&facts.chunks.to_le_bytes())?;
        file.write_all(&[u8::from(is_good_but_for_tpot)])?;
        let bytes = (text.visible.len() + text.hidden.len()) as u64;
        file.write_all(&bytes.to_le_bytes())?;
        file.write_all(text.visible.as_bytes())?;
        file.write_all(text.hidden.as_bytes())
    }

    /// Counts them all, and enters them into the phases that they belong to. On all cores: the
    /// load is over.
    pub fn count(self, tokenizer: &Tokenizer, snapshot: &mut Snapshot) -> io::Result<()> {
        let tpot_goal_ns = self.goals.map(|goals| goals.tpot_ns).filter(|&ns| ns < u64::MAX);
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        let mut file = BufReader::new(file);
        let mut left = self.answers;
        while left > 0 {
            let count = left.min(OUTPUTS_AT_ONCE);
            left -= count;
            let outputs =
                (0..count).map(|_| read_one(&mut file)).collect::<io::Result<Vec<Output>>>()?;
            let tokens = counts(&outputs, tokenizer);
            for (index, phase) in (0..).zip(&mut snapshot.phases) {
                let of_phase =
                    outputs.iter().zip(&tokens).filter(|(output, _)| output.phase == index);
                let counted =
                    of_phase.map(|(output, &tokens)| CountedOutput { tokens, ..output.figures });
                phase.sums.add_counted_outputs(counted, tpot_goal_ns);
            }
        }
        Ok(())
    }
}

/// Tokens of each, on all cores.
fn counts(outputs: &[Output], tokenizer: &Tokenizer) -> Vec<u32> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let share = outputs.len().div_ceil(threads).max(1);
    let count = |part: &[Output]| -> Vec<u32> {
        part.iter().map(|output| tokenizer.count(&output.text) as u32).collect()
    };
    std::thread::scope(|scope| {
        let parts: Vec<_> =
            outputs.chunks(share).map(|part| scope.spawn(move || count(part))).collect();
        parts
            .into_iter()
            .flat_map(|part| part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn read_one(file: &mut impl Read) -> io::Result<Output> {
    let phase = u32::from_le_bytes(bytes(file)?);
    let figures = CountedOutput {
        tokens: 0,
        first_token_ns: u64::from_le_bytes(bytes(file)?),
        last_token_ns: u64::from_le_bytes(bytes(file)?),
        instants: u32::from_le_bytes(bytes(file)?),
        chunks: u32::from_le_bytes(bytes(file)?),
        is_good_but_for_tpot: bytes::<1>(file)? != [0],
    };
    let mut text = vec![0; u64::from_le_bytes(bytes(file)?) as usize];
    file.read_exact(&mut text)?;
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    Ok(Output { phase, figures, text })
}

fn bytes<const N: usize>(file: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Answers in memory at a time.
const OUTPUTS_AT_ONCE: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::finished;
    use loadgen_shards::answer::AnswerFacts;
    use loadgen_shards::record::RecordText;
    use loadgen_shards::recorder::Stamps;

    fn record(visible: &str, hidden: &str) -> Record {
        Record {
            phase: 0,
            position: 0,
            request: 0,
            slot: Some(0),
            stamps: Stamps { sent_ns: 1_000, complete_ns: 900_000, ..Stamps::default() },
            status: 200,
            failure: None,
            body_bytes: 0,
            facts: AnswerFacts {
                is_stream: true,
                first_token_ns: 100_000,
                last_token_ns: 700_000,
                chunks: 3,
                instants: 3,
                ..AnswerFacts::default()
            },
            is_uncounted: true,
            text: Some(Box::new(RecordText {
                visible: visible.to_owned(),
                hidden: hidden.to_owned(),
                gaps_ns: Vec::new(),
            })),
        }
    }

    #[test]
    fn texts_are_counted_after_the_run_reasoning_too_and_told_ones_are_not() {
        let goals = Goals { tpot_ns: 300_000, ..Goals::NONE };
        let mut uncounted = Uncounted::new(&std::env::temp_dir(), Some(goals)).expect("a file");
        // In cl100k: "hello world" is 2 tokens, " again" is 1.
        uncounted.keep(&record("hello world", "")).expect("room");
        uncounted.keep(&record("hello world", " again")).expect("room");
        let told = Record { is_uncounted: false, ..record("hello", "") };
        uncounted.keep(&told).expect("room");
        assert_eq!(uncounted.answers(), 2);
        let mut snapshot = finished(20, 0);
        let last = snapshot.phases.len() - 1;
        snapshot.phases.swap(0, last);
        let good = snapshot.phases[0].sums.counters.good;
        let tokenizer = Tokenizer::builtin("cl100k").expect("built in");
        uncounted.count(&tokenizer, &mut snapshot).expect("it is read back");
        let sums = &snapshot.phases[0].sums;
        let answers = sums.answers.as_ref().expect("some were counted");
        assert_eq!((answers.osl.count(), answers.osl.total), (2, 5));
        // 600 us over 1 and over 2 tokens after the first: the goal is 300 us.
        assert_eq!((answers.tpot.total, sums.counters.good - good), (900_000, 1));
    }
}
