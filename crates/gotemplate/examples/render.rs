//! Renders a template file with values from a JSON file: `cargo run --example render -- page.tmpl values.json`.

#![expect(clippy::disallowed_methods, reason = "reads the files that the command line names")]
#![expect(clippy::print_stdout, reason = "prints the rendered text")]

use std::error::Error;
use std::{env, fs};

use gotemplate::{Budget, Delims, Functions, Limits, Template, Value, write_yaml};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let (Some(template), Some(values)) = (args.next(), args.next()) else {
        return Err("usage: render TEMPLATE VALUES.json".into());
    };
    let functions = Functions::go()
        .with_sprig()
        .with("toYaml", 1, 1, |budget, args| Ok(Value::from(write_yaml(args.any(0), budget)?)));
    let text = fs::read_to_string(&template)?;
    let values = serde_json::from_str(&fs::read_to_string(values)?)?;

    let parsed = Template::parse(&template, &text, Delims::BRACES, &functions)?;
    let mut budget = Budget::new(Limits { bytes: 1 << 20, ..Limits::default() });
    print!("{}", parsed.render(&Value::json(&values), &mut budget)?);
    Ok(())
}
