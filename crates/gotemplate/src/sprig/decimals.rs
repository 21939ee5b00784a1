//! sprig's arithmetic on decimal numbers, whose intermediate results are not rounded to binary floats.

use std::str::FromStr as _;

use bigdecimal::{BigDecimal, RoundingMode, ToPrimitive as _, Zero as _};

use super::numbers::float;
use crate::error::Reason;
use crate::function::{ANY, Args, Functions};
use crate::value::Value;

/// The number of digits after the point of a quotient.
const QUOTIENT: i64 = 16;

type Operation = fn(&BigDecimal, &BigDecimal) -> Result<BigDecimal, Reason>;

pub(super) fn register(functions: Functions) -> Functions {
    let add: Operation = |left, right| Ok(left + right);
    functions
        .with("add1f", 1, 1, move |_, args| folded(decimal(&Value::Int(1)), args, add))
        .with("addf", 0, ANY, move |_, args| folded(BigDecimal::zero(), args, add))
        .with("subf", 1, ANY, |_, args| from_first(args, |left, right| Ok(left - right)))
        .with("mulf", 1, ANY, |_, args| from_first(args, |left, right| Ok(left * right)))
        .with("divf", 1, ANY, |_, args| from_first(args, divided))
}

/// Converts a value to the shortest decimal number that reads back as the same float.
fn decimal(value: &Value<'_>) -> BigDecimal {
    BigDecimal::from_str(&format!("{:e}", float(value))).unwrap_or_default()
}

fn from_first<'a>(args: Args<'_, 'a>, operation: Operation) -> Result<Value<'a>, Reason> {
    folded(decimal(args.any(0)), Args(&args.all()[1..]), operation)
}

fn folded<'a>(first: BigDecimal, args: Args<'_, 'a>, operation: Operation) -> Result<Value<'a>, Reason> {
    let result = args.all().iter().map(decimal).try_fold(first, |left, right| operation(&left, &right))?;
    Ok(Value::Float(result.to_f64().unwrap_or_default()))
}

fn divided(left: &BigDecimal, right: &BigDecimal) -> Result<BigDecimal, Reason> {
    if right.is_zero() {
        return Err(Reason::Refused("decimal division by 0".to_owned()));
    }
    Ok((left / right).with_scale_round(QUOTIENT, RoundingMode::HalfUp))
}
