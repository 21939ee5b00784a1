//! Tests of error positions, limits, typed data and functions of the caller, which the comparison with Go's
//! text/template does not cover.

use serde_json::{Value as Json, json};

use super::{
    Budget, Delims, Error, Exceeded, Failure, Field, Functions, Kind, Limits, Reason, Shape, Syntax, Template, Value,
    write_yaml,
};

static OWNER: Shape =
    Shape { name: "v1.Owner", fields: &[Field { name: "ID", json: "id", kind: Kind::MaybeInt }], getters: false };
static PORT: Shape = Shape {
    name: "v1.Port",
    fields: &[
        Field { name: "Name", json: "name", kind: Kind::Text },
        Field { name: "Number", json: "number", kind: Kind::Int },
    ],
    getters: false,
};
static SERVICE: Shape = Shape {
    name: "v1.Service",
    fields: &[
        Field { name: "Name", json: "name", kind: Kind::Text },
        Field { name: "Public", json: "public", kind: Kind::Bool },
        Field { name: "Owner", json: "owner", kind: Kind::Pointer(&OWNER) },
        Field { name: "Ports", json: "ports", kind: Kind::List(&Kind::Struct(&PORT)) },
        Field { name: "Labels", json: "labels", kind: Kind::TEXTS },
    ],
    getters: false,
};
static MESSAGE: Shape = Shape {
    name: "api.Message",
    fields: &[
        Field { name: "Mode", json: "mode", kind: Kind::Enum(&[("OFF", 0), ("ON", 1)]) },
        Field { name: "Next", json: "next", kind: Kind::Pointer(&MESSAGE) },
        Field { name: "Flag", json: "flag", kind: Kind::Pointer(&FLAG) },
    ],
    getters: true,
};
static FLAG: Shape =
    Shape { name: "api.Flag", fields: &[Field { name: "Value", json: "", kind: Kind::Bool }], getters: true };

fn functions() -> Functions {
    let to_yaml = |budget: &mut Budget, args: super::Args<'_, '_>| write_yaml(args.any(0), budget);
    Functions::go().with_sprig().with("toYaml", 1, 1, move |budget, args| Ok(Value::from(to_yaml(budget, args)?)))
}

fn try_with(text: &str, data: &Value<'_>, limits: Limits) -> Result<String, Error> {
    Template::parse("sidecar", text, Delims::BRACES, &functions())?.render(data, &mut Budget::new(limits))
}

#[track_caller]
fn render(text: &str, data: &Json) -> String {
    try_with(text, &Value::json(data), Limits::default()).unwrap()
}

#[track_caller]
fn failure(text: &str, data: &Value<'_>, limits: Limits) -> Failure {
    match try_with(text, data, limits) {
        Err(Error::Render(failure)) => *failure,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refusal(text: &str) -> (usize, Syntax) {
    match Template::parse("sidecar", text, Delims::BRACES, &functions()) {
        Err(Error::Syntax { line, reason, .. }) => (line, reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_failure_names_template_line_expression_and_what_was_rendered() {
    let data = json!({ "a": null });
    let failure = failure("kind: Pod\nname: {{ .a.b | print }}", &Value::json(&data), Limits::default());
    assert_eq!(
        (failure.template.as_str(), failure.line, failure.column, failure.at.as_str()),
        ("sidecar", 2, 10, ".a.b")
    );
    assert_eq!(failure.reason, Reason::NilPointer { field: "b".to_owned(), of: "interface {}".to_owned() });
    assert_eq!(failure.rendered, "kind: Pod\nname: ");
    let error = Error::from(Box::new(failure));
    let text = error.to_string();
    assert!(text.starts_with("template sidecar, line 2, column 10, at <.a.b>: nil pointer evaluating"), "{text}");
    assert!(std::error::Error::source(&error).is_none(), "the text includes the reason");
}

#[test]
fn only_the_end_of_what_was_rendered_is_quoted() {
    let failure = failure(&format!("{}{{{{ fail `x` }}}}", "é".repeat(100)), &Value::Missing, Limits::default());
    assert_eq!(failure.rendered, "é".repeat(60));
    assert_eq!(failure.reason, Reason::Call { function: "fail".to_owned(), why: "x".to_owned() });
}

#[test]
fn a_fault_of_syntax_is_found_when_the_template_is_parsed() {
    assert_eq!(refusal("{{ $x = 1 }}"), (1, Syntax::Variable("$x".to_owned())));
    assert_eq!(
        refusal("a\n{{ if . }}").1,
        Syntax::Unexpected { found: "the end of the template".to_owned(), context: "input" }
    );
    assert_eq!(refusal(&"{{ if . }}".repeat(1000)).1, Syntax::TooDeep(100));
    assert_eq!(refusal(&format!("{{{{ {} }}}}", "(".repeat(1000))).1, Syntax::Unclosed("parenthesis"));
    assert_eq!(refusal(&format!("{{{{ {}1{} }}}}", "(".repeat(1000), ")".repeat(1000))).1, Syntax::TooDeep(100));
}

#[test]
fn an_undefined_function_fails_when_it_is_called() {
    let text = "a{{ if .new }}{{ newer .new | quote }}{{ end }}b{{ define `never` }}{{ newest }}{{ end }}";
    assert_eq!(render(text, &json!({})), "ab");
    let failed = failure(text, &Value::json(&json!({"new": 1})), Limits::default());
    assert_eq!((failed.reason, &*failed.at), (Reason::Undefined("newer".to_owned()), "newer .new"));
    let template = Template::parse("t", text, Delims::BRACES, &functions()).unwrap();
    assert_eq!(template.undefined(), ["newer", "newest"]);
}

#[test]
fn clones_of_a_made_map_share_changes_and_maps_of_the_data_do_not_change() {
    let data = json!({"map": {"a": 1}});
    let shared =
        "{{ $m := dict `a` 1 }}{{ $n := dict `m` $m }}{{ $_ := set $m `b` 2 }}{{ $_ := unset $m `a` }}{{ $n }}";
    assert_eq!(render(shared, &data), "map[m:map[b:2]]");
    assert_eq!(render("{{ merge .map (dict `b` 2) }} {{ .map }}", &data), "map[a:1 b:2] map[a:1]");
    for (text, why) in [
        ("{{ set .map `b` 2 }}", "a map of the data cannot be changed; a deepCopy of it can"),
        ("{{ unset .map `a` }}", "a map of the data cannot be changed; a deepCopy of it can"),
        ("{{ $m := dict }}{{ set $m `m` (list (dict `m` $m)) }}", "a map cannot be put into itself"),
    ] {
        let function = text.split_whitespace().find(|word| word.ends_with("set")).unwrap().trim_start_matches("{{");
        let why = why.to_owned();
        let reason = failure(text, &Value::json(&data), Limits::default()).reason;
        assert_eq!(reason, Reason::Call { function: function.to_owned(), why }, "{text}");
    }
    // Each `set` nests one level deeper; dropping the maps must not recurse.
    let chain = "{{ $m := dict }}{{ $top := $m }}{{ range 100000 }}{{ $n := dict }}{{ $_ := set $m `m` $n }}{{ $m = $n }}{{ end }}";
    let limits = Limits { bytes: 64 << 20, steps: 10_000_000, ..Limits::default() };
    assert_eq!(try_with(chain, &Value::Missing, limits).unwrap(), "");
    let printed = failure(&format!("{chain}{{{{ $top }}}}"), &Value::Missing, limits);
    assert_eq!(printed.reason, Reason::TooDeep(200));
}

#[test]
fn rendering_is_bounded_in_steps() {
    let limits = Limits { steps: 1000, ..Limits::default() };
    let stopped = failure("{{ range 1000000000 }}{{ end }}", &Value::Missing, limits);
    assert_eq!(stopped.reason, Reason::Exceeded(Exceeded::Steps(1000)));
    let long = json!("x".repeat(1 << 20));
    let stopped =
        failure("{{ range 5 }}{{ contains `y` $ }}{{ end }}", &Value::json(&long), Limits { steps: 50_000, ..limits });
    assert_eq!(stopped.reason, Reason::Exceeded(Exceeded::Steps(50_000)), "a look at much text takes many steps");
}

#[test]
fn rendering_is_bounded_in_bytes() {
    let limits = Limits { bytes: 10_000, ..Limits::default() };
    for text in [
        "{{ range 1000 }}0123456789{{ end }}!",
        "{{ $x := `x` }}{{ range 100 }}{{ $x = print $x $x }}{{ end }}",
        "{{ $x := list 1 }}{{ range 60 }}{{ $x = list $x $x }}{{ end }}{{ $x }}",
        "{{ $x := dict `a` 1 }}{{ range 60 }}{{ $x = dict `a` $x `b` $x }}{{ end }}{{ toYaml $x }}",
        "{{ repeat 1000000000000 `x` }}",
        "{{ printf `%999999d` 1 }}",
        "{{ indent 1000000000 `a\nb` }}",
        "{{ nindent 1000000000 `a` }}",
        "{{ replace `` `0123456789` (repeat 2000 `a`) }}",
    ] {
        assert_eq!(failure(text, &Value::Missing, limits).reason, Reason::Exceeded(Exceeded::Bytes(10_000)), "{text}");
    }
}

#[test]
fn rendering_is_bounded_in_depth() {
    let endless =
        failure("{{ define `t` }}{{ template `t` }}{{ end }}{{ template `t` }}", &Value::Missing, Limits::default());
    assert_eq!(endless.reason, Reason::TooDeep(250));
    let nested = failure("{{ $x := 1 }}{{ range 200 }}{{ $x = list $x }}{{ end }}", &Value::Missing, Limits::default());
    assert_eq!(nested.reason, Reason::TooDeep(100));
}

#[test]
fn a_template_is_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>(_: &T) {}
    let template = Template::parse("t", "{{ . }}", Delims::BRACES, &functions()).unwrap();
    shared(&template);
}

#[test]
fn brackets_leave_braces_alone() {
    let template = Template::parse("t", "{{ .x }}[[ .a ]]", Delims::BRACKETS, &functions()).unwrap();
    assert_eq!(template.render(&Value::json(&json!({ "a": 1 })), &mut Budget::default()).unwrap(), "{{ .x }}1");
}

#[test]
fn structs_have_zeroes_and_refuse_what_they_do_not_know() {
    let service = json!({ "ports": [{ "number": 1_000_000 }] });
    let service = Value::shaped(&service, &SERVICE);
    let text = "{{ eq .Name `` }} {{ .Public }} {{ .Owner }} {{ range .Ports }}{{ .Number }} {{ . }}{{ end }}|\
                {{ index .Labels `nope` }}|{{ .Labels.nope }}";
    let expected = "true false <nil> 1000000 { 1000000}||<no value>";
    assert_eq!(try_with(text, &service, Limits::default()).unwrap(), expected);
    let unknown = failure("{{ .NameX }}", &service, Limits::default());
    assert_eq!(unknown.reason, Reason::UnknownField { field: "NameX".to_owned(), of: "v1.Service".to_owned() });
    let nil = failure("{{ .Owner.ID }}", &service, Limits::default());
    assert_eq!(nil.reason, Reason::NilPointer { field: "ID".to_owned(), of: "*v1.Owner".to_owned() });
}

#[test]
fn messages_have_getters_that_work_on_nil() {
    let message = json!({ "mode": "ON", "flag": true });
    let message = Value::shaped(&message, &MESSAGE);
    let text = "{{ .Mode }} {{ .Mode.String }} {{ printf `%d` .Mode }} {{ .GetFlag.GetValue }} {{ .GetNext.GetNext.GetFlag.GetValue }} \
                {{ toJson . }}";
    let expected = "ON ON 1 true false {\"mode\":\"ON\",\"flag\":true}";
    assert_eq!(try_with(text, &message, Limits::default()).unwrap(), expected);
    let nil = failure("{{ .Next.Flag }}", &message, Limits::default());
    assert_eq!(nil.reason, Reason::NilPointer { field: "Flag".to_owned(), of: "*api.Message".to_owned() });
}

#[test]
fn render_uses_the_same_data_and_the_same_limits() {
    let functions = functions().with_render();
    let render = |text: &str, data: &Json| {
        Template::parse("t", text, Delims::BRACES, &functions)
            .unwrap()
            .render(&Value::json(data), &mut Budget::default())
    };
    let data = json!({ "name": "x", "search": "{{ .name }}.svc", "broken": "{{ .name", "loop": "{{ render .loop }}", "null": null });
    assert_eq!(
        render("{{ range list .search .broken `{{ .null.x }}` }}<{{ render . }}>{{ end }}", &data).unwrap(),
        "<x.svc><><>"
    );
    match render("{{ render .loop }}", &data) {
        Err(Error::Render(failure)) => assert_eq!(failure.reason, Reason::TooDeep(250)),
        other => panic!("{other:?}"),
    }
    let newer = failure("{{ render . }}", &Value::Missing, Limits::default());
    assert_eq!(newer.reason, Reason::Undefined("render".to_owned()), "newer releases have none");
}

#[test]
fn other_data_is_rendered_on_the_path_of_a_former_rendering() {
    let text = "{{ define `t` }}{{ if .z }}z{{ end }}{{ end }}{{ if .a }}a{{ .v }}{{ else }}b{{ .v }}{{ end }}\
                {{ range .l }}{{ with . }}<{{ . }}>{{ else }}-{{ end }}{{ end }}{{ template `t` . }} {{ eq .w `a` }}";
    let template = Template::parse("t", text, Delims::BRACES, &Functions::go()).unwrap();
    let first = json!({"a": true, "v": 1, "w": "a", "l": [1, 0], "z": 1});
    let rendered = template.render_recorded(&Value::json(&first), None, &mut Budget::default()).unwrap();
    assert_eq!(rendered.text, "a1<1>-z true");
    let along =
        |data: &Json| template.render_recorded(&Value::json(data), Some(&rendered.path), &mut Budget::default());
    assert_eq!(along(&json!({"a": false, "v": 2, "w": "b", "l": [0, 2], "z": 0})).unwrap().text, "a2<0>-z true");
    for items in [json!([1]), json!([1, 2, 3])] {
        match along(&json!({"a": true, "v": 2, "w": "a", "l": items, "z": 1})) {
            Err(Error::Render(failure)) => assert_eq!(failure.reason, Reason::Path),
            other => panic!("{items}: {other:?}"),
        }
    }
}

#[test]
fn callers_add_functions_and_replace_them() {
    let environment = std::collections::HashMap::from([("A", "1")]);
    let functions = functions()
        .with("env", 2, 2, move |_, args| {
            Ok(environment.get(args.str(0)?).map_or_else(|| args.any(1).clone(), |value| Value::from(*value)))
        })
        .with("len", 1, 1, |_, _| Ok(Value::Int(42)));
    let template =
        Template::parse("t", "{{ env `A` `d` }} {{ env `B` `d` }} {{ len . }}", Delims::BRACES, &functions).unwrap();
    assert_eq!(template.render(&Value::Missing, &mut Budget::default()).unwrap(), "1 d 42");
}

#[test]
fn a_number_without_a_type_ends_only_the_rendering_that_reaches_it() {
    let template = Template::parse("t", "{{ if . }}{{ 1+2i }}{{ end }}b", Delims::BRACES, &Functions::go()).unwrap();
    assert_eq!(template.render(&Value::Bool(false), &mut Budget::default()).unwrap(), "b");
    let error = template.render(&Value::Bool(true), &mut Budget::default()).unwrap_err().to_string();
    assert!(error.contains("1+2i is complex or too large"), "{error}");
}

#[test]
fn results_of_regular_expressions_are_charged_before_they_are_made() {
    let much = Json::from("x".repeat(2 << 20));
    for text in [
        "{{ regexReplaceAll `x` . . }}",
        "{{ regexReplaceAllLiteral `x` . . }}",
        "{{ regexReplaceAll `x+` . (repeat 4096 `$0`) }}",
        "{{ regexFindAll `x` . -1 }}",
        "{{ regexSplit `x` . -1 }}",
    ] {
        let limits = Limits { steps: u64::MAX, ..Limits::default() };
        assert_eq!(
            failure(text, &Value::json(&much), limits).reason,
            Reason::Exceeded(Exceeded::Bytes(limits.bytes)),
            "{text}"
        );
    }
    let compiling = "{{ range until 2000 }}{{ $_ := regexMatch `a` `b` }}{{ end }}";
    let limits = Limits::default();
    assert_eq!(failure(compiling, &Value::Missing, limits).reason, Reason::Exceeded(Exceeded::Steps(limits.steps)));
}

#[test]
fn an_appended_list_leaves_the_list_before_and_others_of_it_as_they_were() {
    for (text, printed) in [
        (
            "{{ $a := list 1 }}{{ $b := append $a 2 }}{{ $c := append $a 3 }}{{ $d := append $b 4 }}{{ $a }}{{ $b }}{{ $c }}{{ $d }}",
            "[1][1 2][1 3][1 2 4]",
        ),
        ("{{ $a := list 1 }}{{ $a = append $a $a }}{{ $a = append $a $a }}{{ $a }}", "[1 [1] [1 [1]]]"),
        (
            "{{ $m := dict }}{{ $a := list }}{{ $_ := set $m `a` $a }}{{ $b := append $a $m }}{{ $m }}{{ $b }}",
            "map[a:[]][map[a:[]]]",
        ),
        ("{{ range append .l `c` }}{{ . }}{{ end }}{{ len .l }}{{ len (append (slice .l 1) 1) }}", "abc22"),
    ] {
        assert_eq!(render(text, &json!({"l": ["a", "b"]})), printed, "{text}");
    }
}

#[test]
fn a_loop_of_appends_costs_twice_as_much_for_twice_as_many() {
    let cost = |count: usize| {
        let text = format!(
            "{{{{ $l := list }}}}{{{{ range {count} }}}}{{{{ if len $l }}}}{{{{ index $l 0 }}}}{{{{ end }}}}{{{{ $l = append $l . }}}}{{{{ end }}}} {{{{ len $l }}}}"
        );
        let mut budget = Budget::default();
        let template = Template::parse("t", &text, Delims::BRACES, &functions()).unwrap();
        assert_eq!(
            template.render(&Value::Missing, &mut budget).unwrap(),
            format!("{} {count}", "0".repeat(count - 1))
        );
        let (all, left) = (Limits::default(), budget.left());
        (all.steps - left.steps, all.bytes - left.bytes)
    };
    let ((steps, bytes), (twice_steps, twice_bytes)) = (cost(1000), cost(2000));
    assert!(twice_steps < steps * 2 + 10 && twice_bytes < bytes * 2 + 1000, "{twice_steps} {twice_bytes}");
    // Copies are charged, so the budget ends a loop that copies its list.
    let copies = "{{ $l := list }}{{ range 100000 }}{{ $l = append $l (list) }}{{ end }}";
    assert!(matches!(failure(copies, &Value::Missing, Limits::default()).reason, Reason::Exceeded(_)));
}

#[test]
fn yaml_is_indented_behind_each_line_break_of_unicode() {
    // As sigs.k8s.io/yaml writes them, except U+0085, which sigs.k8s.io/yaml loses.
    for (text, written) in [
        ("a\u{2029}b\n", "|\n  a\u{2029}  b\n"),
        ("a\n\u{2028}b", "|-\n  a\n\u{2028}  b\n"),
        ("a\n\u{2028}", "|+\n  a\n\u{2028}"),
        ("x\u{2028}y", "'x\u{2028}  y'\n"),
        ("x\u{85}y", "\"x\\Ny\"\n"),
    ] {
        let expected = format!("k: {written}l: 1\n");
        assert_eq!(render("{{ toYaml . }}", &json!({"k": text, "l": 1})), expected, "{text:?}");
    }
}
