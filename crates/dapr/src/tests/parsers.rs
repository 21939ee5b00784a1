//! Tests of the annotation syntaxes for variables, secrets and mounts.

use super::*;
use crate::{env, mounts};

#[test]
fn a_comma_before_a_name_separates_variables() {
    for (text, expected) in [
        ("", vec![]),
        ("ENV1=value1,ENV2=value2, ENV3=value3", vec![("ENV1", "value1"), ("ENV2", "value2"), ("ENV3", "value3")]),
        ("ENV1=value1 , ENV2 = x", vec![("ENV1", "value1 , ENV2 = x")]),
        ("A=1 ,\t B=2", vec![("A", "1"), ("B", "2")]),
        (
            "NO_PROXY=\"a.local,b.local,10.0.0.0/8\",X=1",
            vec![("NO_PROXY", "\"a.local,b.local,10.0.0.0/8\""), ("X", "1")],
        ),
        (
            "A=1,OTEL_RESOURCE_ATTRIBUTES=service.namespace=ns,service.version=1",
            vec![("A", "1"), ("OTEL_RESOURCE_ATTRIBUTES", "service.namespace=ns,service.version=1")],
        ),
        (
            "OTEL_RESOURCE_ATTRIBUTES=service.namespace=ns,B=2",
            vec![("OTEL_RESOURCE_ATTRIBUTES", "service.namespace=ns"), ("B", "2")],
        ),
        (
            "DB_CONNECTION=host=localhost;port=5432;user=admin",
            vec![("DB_CONNECTION", "host=localhost;port=5432;user=admin")],
        ),
        ("KEY1=value=with=equals", vec![("KEY1", "value=with=equals")]),
        ("none", vec![]),
        ("=x", vec![("", "x")]),
        ("A B=1, C =2", vec![("A B", "1, C =2")]),
        ("A=1,", vec![("A", "1,")]),
        (",A=1", vec![("A", "1")]),
        ("A=1,\u{a0}B=2", vec![("A", "1,\u{a0}B=2")]),
        ("\u{a0}A=1\u{a0}", vec![("A", "1")]),
        ("A=1,_b=", vec![("A", "1"), ("_b", "")]),
        ("A=1,2b=3", vec![("A", "1,2b=3")]),
    ] {
        let found = env::parse(text);
        let expected_list: Vec<Value> = expected.iter().map(|(name, value)| env::variable(name, value)).collect();
        assert_eq!(found.list, expected_list, "{text:?}");
        assert_eq!(found.keys, expected.iter().map(|(name, _)| *name).collect::<Vec<_>>(), "{text:?}");
    }
}

#[test]
fn secrets_have_an_optional_key() {
    for (text, expected) in [
        ("", vec![]),
        ("KEY=NAME", vec![("KEY", "NAME", "NAME")]),
        ("KEY=NAME:SECRET", vec![("KEY", "NAME", "SECRET")]),
        ("KEY1=NAME1,KEY2=NAME2:S2", vec![("KEY1", "NAME1", "NAME1"), ("KEY2", "NAME2", "S2")]),
        ("KEY1= NAME1 , KEY2=NAME2 : S2 ", vec![("KEY1", "NAME1", "NAME1"), ("KEY2", "NAME2", "S2")]),
        ("A=", vec![("A", "", "")]),
        ("A=:k", vec![("A", "", "k")]),
        ("A=a:b:c", vec![]),
    ] {
        let expected: Vec<Value> =
            expected.iter().map(|(name, secret, key)| env::from_secret(name, secret, key)).collect();
        assert_eq!(env::parse_from_secret(text).list, expected, "{text:?}");
    }
    assert_eq!(env::parse_from_secret("A=a:b:c").keys, ["A"]);
    let empty = json!({"name": "A", "valueFrom": {"secretKeyRef": {"key": ""}}});
    assert_eq!(env::parse_from_secret("A=").list, [empty]);
}

#[test]
fn mounts_have_two_parts() {
    for (text, expected) in [
        ("", vec![]),
        ("v1:/1, v2:/2,v3:/3", vec![("v1", "/1"), ("v2", "/2"), ("v3", "/3")]),
        (" v1:/1 ", vec![("v1", "/1")]),
        ("v1:/1:ro,v2,v3:/3", vec![("v3", "/3")]),
        (":", vec![("", "")]),
    ] {
        for read_only in [true, false] {
            let found: Vec<_> = mounts::parse(text, read_only).collect();
            let expected: Vec<_> =
                expected.iter().map(|&(volume, path)| mounts::Wanted { volume, path, read_only }).collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
