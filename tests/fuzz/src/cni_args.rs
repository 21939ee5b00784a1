//! Parses any CNI environment and checks the names in the result. The input is the values of the variables in `NAMES`, separated by zero
//! bytes. If it has fewer values, the remaining variables have usual ones.

use cni::{Call, Target};

const NAMES: [&str; 5] = ["CNI_ARGS", "CNI_COMMAND", "CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS"];

fn check(target: &Target) {
    let id = &target.attachment.container_id;
    assert!(!id.is_empty() && !id.contains(['/', ' ', '\n', '\0']));
    assert!(matches!(target.attachment.ifname.len(), 1..=15) && !target.attachment.ifname.contains('/'));
    for name in [&target.pod.name, &target.pod.namespace].into_iter().flatten() {
        assert!(!name.is_empty() && name != "." && name != ".." && !name.contains('/'));
    }
}

/// Checks the properties for one input.
pub fn property(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let values: Vec<_> = text.split('\0').collect();
    let given = |name: &str| {
        let at = NAMES.iter().position(|known| *known == name)?;
        let usual = ["", "ADD", "c0ffee", "eth0", "/run/netns/x"][at];
        Some((*values.get(at).unwrap_or(&usual)).to_owned())
    };
    match Call::parse(&|name| if name == "CNI_PATH" { Some("/opt/cni/bin".to_owned()) } else { given(name) }) {
        Ok(Call::Add(target) | Call::Check(target)) => check(&target),
        Ok(_) => {}
        Err(error) => assert_eq!(error.code().number(), 4, "{error}"),
    }
}
