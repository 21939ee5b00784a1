//! Translates the reasons in a report, which are metric label values, to words for the status page. Pure.

use podfacts::SkipReason;

/// Returns the words for a reason, or the reason itself if this table has none for it.
pub(super) fn of(reason: &str) -> &str {
    if let Some(skip) = SkipReason::ALL.into_iter().find(|skip| skip.as_str() == reason) {
        return skip.meaning();
    }
    match reason {
        "not_observed" => "no ADD since the agent's start",
        "added" => "its rules were added",
        "reconciled" => "its rules were corrected",
        "none" => "its rules were right already",
        "annotation" => "it has an invalid annotation",
        "lookup" => "the pod was not found in time",
        "netns" => "its network namespace cannot be entered",
        "converge" => "its rules cannot be programmed",
        "binary_missing" => "the plugin's program was missing",
        "binary_differs" => "the plugin's program had been changed",
        "kubeconfig_missing" => "the plugin's kubeconfig was missing",
        "entry_missing" => "no network configuration named the plugin",
        "entry_differs" => "the plugin's entry had been changed",
        "converted" => "a list has replaced the configuration of a single plugin",
        "left_behind" => "a configuration was no longer used",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_words_and_unknown_ones_stay() {
        assert_eq!(of("no_proxy"), "it has no container istio-proxy");
        assert_eq!(of("entry_missing"), "no network configuration named the plugin");
        assert_eq!(of("of_a_later_version"), "of_a_later_version");
    }
}
