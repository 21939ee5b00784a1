//! Compares how this project and Go parse and serialize objects of all Kubernetes types.

use inject::{Struct, yaml};
use libtest_mimic::{Failed, Trial};
use proptest::test_runner::{TestRng, TestRunner};
use serde_json::Value;

use super::kept::changes;
use super::kubernetes::{self, written};
use super::random::{TABLE, Types};

type Check = fn() -> Result<(), Failed>;

/// The number of objects of each type.
const OBJECTS: usize = 12;

pub(crate) fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 5] = [
        ("the committed table is what the program prints", committed),
        ("random objects of each type are written as Go writes them", objects),
        ("random objects with faults are refused where Go refuses them", faults),
        ("no value of a random object of any type is lost", kept),
        ("scalars of YAML are read as Go reads them", scalars),
    ];
    let missing = kubernetes::missing();
    let trial = |(name, check): (&str, Check)| tier::trial("go", format!("types/{name}"), missing.clone(), check);
    checks.into_iter().map(trial).collect()
}

fn committed() -> Result<(), Failed> {
    let printed = kubernetes::table()?;
    (printed == TABLE)
        .then_some(())
        .ok_or_else(|| "crates/inject/src/typed/table.txt is another one; `make types` writes it".into())
}

/// The random number generator of this run, seeded by `PROPTEST_RNG_SEED`.
pub(crate) fn rng() -> TestRng {
    TestRunner::default().new_rng()
}

/// Parses a document as a type with this project's code and serializes it as JSON.
fn ours(of: &str, text: &str) -> Result<String, Failed> {
    let of = Struct::named(of).ok_or_else(|| format!("the table has no {of}"))?;
    Ok(of.canonical(yaml::value(text)?)?.to_string())
}

/// Whether Go's error is that a string field contains a number or a boolean. Go refuses these only in fields of
/// embedded structs; this project's code accepts them everywhere.
pub(crate) fn is_embedded(error: &str) -> bool {
    let scalar = ["json: cannot unmarshal number into ", "json: cannot unmarshal bool into "];
    let other = [" of type int32", " of type int64", " of type bool"];
    scalar.iter().any(|start| error.contains(start)) && !other.iter().any(|end| error.ends_with(end))
}

/// Fails unless Go and this project's code either serialize a document to the same JSON or both refuse it.
fn same(of: &str, text: &str) -> Result<(), Failed> {
    let response = written(of, text)?;
    match (ours(of, text), response.error.is_empty()) {
        (Ok(ours), true) => {
            // Go writes the characters `<`, `>` and `&` as escapes in JSON. Parsing and serializing the text removes
            // these escapes.
            let theirs = serde_json::from_str::<Value>(&response.json)?.to_string();
            (ours == theirs).then_some(()).ok_or_else(|| format!("{of} {text}\n  Go   {theirs}\n  ours {ours}").into())
        }
        (Err(_), false) => Ok(()),
        (Ok(ours), false) if ours != text && is_embedded(&response.error) => same(of, &ours),
        (Ok(ours), false) => Err(format!("{of} {text}\n  Go refuses it: {}\n  ours {ours}", response.error).into()),
        (Err(error), true) => Err(format!("{of} {text}\n  is refused: {error:?}\n  Go {}", response.json).into()),
    }
}

/// Fails with the first line that differs.
pub(crate) fn equal(theirs: &str, ours: &str) -> Result<(), String> {
    if theirs == ours {
        return Ok(());
    }
    let (mut their_lines, mut our_lines, mut number) = (theirs.lines(), ours.lines(), 0);
    loop {
        number += 1;
        match (their_lines.next(), our_lines.next()) {
            (None, None) => return Err("they differ in their ends".to_owned()),
            (theirs, ours) if theirs != ours => {
                return Err(format!("line {number}\n  Go   {theirs:?}\n  ours {ours:?}"));
            }
            _ => {}
        }
    }
}

fn all(faults: Option<u32>) -> Result<(), Failed> {
    let (types, mut rng) = (Types::parse(TABLE), rng());
    for name in types.names() {
        for _ in 0..OBJECTS {
            same(name, &types.object(name, &mut rng, faults).to_string())?;
        }
    }
    Ok(())
}

fn objects() -> Result<(), Failed> {
    all(None)
}

fn faults() -> Result<(), Failed> {
    all(Some(15))
}

fn kept() -> Result<(), Failed> {
    let (types, mut rng) = (Types::parse(kubernetes::table()?), rng());
    for name in types.names() {
        let of = Struct::named(name).ok_or_else(|| format!("the committed table has no {name}"))?;
        for _ in 0..OBJECTS {
            let before = types.object(name, &mut rng, None);
            let changes = changes(&types, name, &before, &of.canonical(before.clone())?);
            if !changes.is_empty() {
                return Err(format!("{name} {before}\n{}", changes.join("\n")).into());
            }
        }
    }
    Ok(())
}

fn scalars() -> Result<(), Failed> {
    let words = [
        "",
        "~",
        "null",
        "true",
        "yes",
        "on",
        "Off",
        "y",
        "1",
        "-1",
        "+1",
        "0",
        "-0",
        "007",
        "0x1f",
        "0b11",
        "0o17",
        "1_000",
        "1.0",
        "1.50",
        "1e3",
        "1e6",
        "1e21",
        "1E-7",
        ".5",
        "-.5",
        "3000000000",
        "9223372036854775807",
        "9223372036854775808",
        "2024-01-01",
        "2024-01-01T00:00:00Z",
        "12:30",
        "12:30:45",
        "a",
        "\"1\"",
        "'yes'",
        "[]",
        "{}",
        "[1]",
        "{a: 1}",
    ];
    let fields = [
        ("meta.ObjectMeta", "name: "),
        ("meta.ObjectMeta", "labels: {a: x}\nannotations:\n  a: "),
        ("meta.ObjectMeta", "generation: "),
        ("meta.ObjectMeta", "creationTimestamp: "),
        ("meta.ObjectMeta", "finalizers: "),
        ("meta.ObjectMeta", "annotations: "),
        ("core.Container", "stdin: "),
        ("core.Container", "args:\n- "),
        ("core.ContainerPort", "containerPort: "),
        ("core.ResourceRequirements", "limits:\n  cpu: "),
        ("core.HTTPGetAction", "port: "),
        ("core.PodSpec", "hostUsers: "),
        ("core.PodSpec", "terminationGracePeriodSeconds: "),
    ];
    for (of, start) in fields {
        for word in words {
            same(of, &format!("{start}{word}\n"))?;
        }
    }
    // Map keys are strings, even if they have the form of another type.
    let is_key = |word: &&str| !word.is_empty() && !word.starts_with(['[', '{']) && *word != "9223372036854775808";
    for key in words.into_iter().filter(is_key) {
        same("meta.ObjectMeta", &format!("labels:\n  {key}: x\n"))?;
    }
    Ok(())
}
