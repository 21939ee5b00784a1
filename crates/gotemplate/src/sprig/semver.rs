//! Semantic versions and constraints on them, with the behaviour of Masterminds/semver.

use std::cmp::Ordering;
use std::sync::LazyLock;

use regex::Regex;

use crate::budget::Budget;
use crate::error::Reason;
use crate::function::{Args, Functions};
use crate::value::{Record, Value};

type Result<'a> = std::result::Result<Value<'a>, Reason>;

const VERSION: &str = r"v?([0-9]+)(\.[0-9]+)?(\.[0-9]+)?(-([0-9A-Za-z\-]+(?:\.[0-9A-Za-z\-]+)*))?(\+([0-9A-Za-z\-]+(?:\.[0-9A-Za-z\-]+)*))?";
const PLACES: &str = r"v?(?:[0-9|xX*]+)(?:\.[0-9|xX*]+)?(?:\.[0-9|xX*]+)?(?:-(?:[0-9A-Za-z\-]+(?:\.[0-9A-Za-z\-]+)*))?(?:\+(?:[0-9A-Za-z\-]+(?:\.[0-9A-Za-z\-]+)*))?";
const OPERATORS: &str = r"=||!=|>|<|>=|=>|<=|=<|~|~>|\^";

#[expect(clippy::expect_used, reason = "constants, which the tests compile")]
static PATTERNS: LazyLock<[Regex; 5]> = LazyLock::new(|| {
    [
        format!("^{VERSION}$"),
        format!(r"\s*({PLACES})\s+-\s+({PLACES})\s*"),
        format!(r"^(\s*(?:{OPERATORS})\s*(?:{PLACES})\s*)((?:\s+|,\s*)(?:{OPERATORS})\s*(?:{PLACES})\s*)*$"),
        format!(r"(?:=>|=<|>=|<=|!=|~>|=|>|<|~|\^|)\s*(?:{PLACES})"),
        r"^\s*(=>|=<|>=|<=|!=|~>|=|>|<|~|\^|)\s*v?([0-9|xX*]+)(\.[0-9|xX*]+)?(\.[0-9|xX*]+)?(-[0-9A-Za-z\-]+(?:\.[0-9A-Za-z\-]+)*)?(?:\+.*)?\s*$".to_owned(),
    ]
    .map(|pattern| Regex::new(&pattern).expect("a pattern"))
});

pub(super) fn register(functions: Functions) -> Functions {
    functions.with("semver", 1, 1, |_, args| Ok(Version::parse(args.str(0)?)?.value())).with(
        "semverCompare",
        2,
        2,
        compare,
    )
}

#[derive(Debug, PartialEq, Eq)]
struct Version {
    numbers: [u64; 3],
    pre: String,
    metadata: String,
    original: String,
}

impl Version {
    fn parse(text: &str) -> std::result::Result<Self, Reason> {
        let wrong = || Reason::Refused(format!("invalid semantic version {text:?}"));
        let found = PATTERNS[0].captures(text).ok_or_else(wrong)?;
        let part = |at: usize| found.get(at).map_or("", |part| part.as_str());
        let number = |at: usize| match part(at).trim_start_matches('.') {
            "" => Ok(0),
            digits => digits.parse::<u64>().map_err(|_| wrong()),
        };
        let pre = part(5);
        let leading = |id: &str| id.len() > 1 && id.starts_with('0') && id.bytes().all(|byte| byte.is_ascii_digit());
        if pre.split('.').any(leading) {
            return Err(wrong());
        }
        Ok(Self {
            numbers: [number(1)?, number(2)?, number(3)?],
            pre: pre.to_owned(),
            metadata: part(7).to_owned(),
            original: text.to_owned(),
        })
    }

    fn value<'a>(&self) -> Value<'a> {
        let [major, minor, patch] = self.numbers;
        let mut text = format!("{major}.{minor}.{patch}");
        for (mark, part) in [("-", &self.pre), ("+", &self.metadata)] {
            text += &if part.is_empty() { String::new() } else { format!("{mark}{part}") };
        }
        let number = |number: u64| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
        let fields = vec![
            ("Major", number(major)),
            ("Minor", number(minor)),
            ("Patch", number(patch)),
            ("Prerelease", Value::from(self.pre.clone())),
            ("Metadata", Value::from(self.metadata.clone())),
            ("Original", Value::from(self.original.clone())),
            ("String", Value::from(text)),
        ];
        Record::value("*semver.Version", fields)
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => prereleases(&self.pre, &other.pre),
        })
    }
}

/// Compares two prereleases part by part. Numbers are compared by their values and precede words. If all parts of the
/// shorter prerelease equal those of the longer one, the shorter prerelease precedes.
fn prereleases(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left.split('.'), right.split('.'));
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(left), Some(right)) => match (left.parse::<u64>(), right.parse::<u64>()) {
                (Ok(left), Ok(right)) => left.cmp(&right),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => left.cmp(right),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// A condition on a version, such as `>=1.2`, `~1.x` or `^2`.
struct Constraint {
    operator: String,
    version: Version,
    /// The number of specified parts: 3 for `1.2.3`, 1 for `1.x`.
    specified: usize,
}

impl Constraint {
    fn parse(text: &str) -> std::result::Result<Self, Reason> {
        let wrong = || Reason::Refused(format!("improper constraint: {text}"));
        if text.is_empty() {
            return Ok(Self { operator: String::new(), version: Version::parse("0.0.0")?, specified: 0 });
        }
        let found = PATTERNS[4].captures(text).ok_or_else(wrong)?;
        let part = |at: usize| found.get(at).map_or("", |part| part.as_str());
        let open = |at: usize| matches!(part(at).trim_start_matches('.'), "" | "x" | "X" | "*");
        let specified = (2..5).position(open).unwrap_or(3);
        let (major, minor, pre) = (part(2), part(3), part(5));
        let version = match specified {
            0 => format!("0.0.0{pre}"),
            1 => format!("{major}.0.0{pre}"),
            2 => format!("{major}{minor}.0{pre}"),
            _ => format!("{major}{minor}{}{pre}", part(4)),
        };
        Ok(Self { operator: part(1).to_owned(), version: Version::parse(&version).map_err(|_| wrong())?, specified })
    }

    fn allows(&self, version: &Version, prereleases: bool) -> bool {
        if !version.pre.is_empty() && !prereleases {
            return false;
        }
        let (ours, theirs) = (self.version.numbers, version.numbers);
        let order = version.compare(&self.version);
        match self.operator.as_str() {
            "!=" => self.differs(version),
            ">" => match self.specified {
                0 | 3 => {
                    if self.specified == 3 {
                        order.is_gt()
                    } else {
                        theirs[0] > ours[0] || (theirs[0] == ours[0] && order.is_gt())
                    }
                }
                specified => theirs[..specified] > ours[..specified],
            },
            "<" => order.is_lt(),
            ">=" | "=>" => order.is_ge(),
            "<=" | "=<" => match self.specified {
                3 => order.is_le(),
                1 => theirs[0] <= ours[0],
                _ => theirs[..2] <= ours[..2],
            },
            "~" | "~>" => self.is_tilde(version),
            "^" => self.is_caret(version),
            _ if self.specified == 3 => order.is_eq(),
            _ => self.is_tilde(version),
        }
    }

    fn differs(&self, version: &Version) -> bool {
        let (ours, theirs) = (self.version.numbers, version.numbers);
        match self.specified {
            0 => ours[..2] != theirs[..2] || ours[2] != theirs[2] || version.compare(&self.version).is_ne(),
            1 => ours[0] != theirs[0],
            2 => {
                ours[..2] != theirs[..2]
                    || ((!version.pre.is_empty() || !self.version.pre.is_empty())
                        && prereleases(&version.pre, &self.version.pre).is_ne())
            }
            _ => version.compare(&self.version).is_ne(),
        }
    }

    fn is_tilde(&self, version: &Version) -> bool {
        let (ours, theirs) = (self.version.numbers, version.numbers);
        if version.compare(&self.version).is_lt() {
            return false;
        }
        if ours == [0; 3] && !matches!(self.specified, 1 | 2) {
            return true;
        }
        theirs[0] == ours[0] && (self.specified == 1 || theirs[1] == ours[1])
    }

    fn is_caret(&self, version: &Version) -> bool {
        let (ours, theirs) = (self.version.numbers, version.numbers);
        if version.compare(&self.version).is_lt() {
            return false;
        }
        if ours[0] > 0 || self.specified == 1 {
            return theirs[0] == ours[0];
        }
        if theirs[0] > 0 {
            return false;
        }
        if ours[1] > 0 || self.specified == 2 {
            return theirs[1] == ours[1];
        }
        theirs[1] == 0 && theirs[2] == ours[2]
    }
}

fn compare<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    let text = args.str(0)?;
    budget.step(text.len())?;
    let ranges = PATTERNS[1].replace_all(text, ">= $1, <= $2 ");
    let mut alternatives = Vec::new();
    for alternative in ranges.split("||") {
        if !PATTERNS[2].is_match(alternative) {
            return Err(Reason::Refused(format!("improper constraint: {alternative}")));
        }
        let all = PATTERNS[3].find_iter(alternative).map(|part| Constraint::parse(part.as_str()));
        alternatives.push(all.collect::<std::result::Result<Vec<_>, _>>()?);
    }
    let version = Version::parse(args.str(1)?)?;
    let holds = |all: &Vec<Constraint>| {
        let prereleases = all.iter().any(|constraint| !constraint.version.pre.is_empty());
        all.iter().all(|constraint| constraint.allows(&version, prereleases))
    };
    Ok(Value::Bool(alternatives.iter().any(holds)))
}
