//! The intended differences whose tests are in another suite.

/// The name of each difference, with the file and function of its test.
pub(super) const ELSEWHERE: &[(&str, &str, &str)] = &[
    (
        "value that Go reads as false",
        "crates/inject/src/istio/policy/tests.rs",
        "a_value_that_go_reads_as_false_declines_since_1_27_too",
    ),
    ("handler that nobody answers", "crates/cnictl/tests/inject/early.rs", "captured"),
    ("handler of another host", "crates/cnictl/tests/inject/early/hooks.rs", "other_host"),
    ("port of a variable", "crates/cnictl/tests/inject/ports.rs", "read"),
    (
        "separators of lines in YAML",
        "crates/inject/src/yaml/separators.rs",
        "blanks_before_a_separator_and_breaks_behind_the_last_one_of_a_block_stay",
    ),
    (
        "byte order mark in a document",
        "crates/inject/src/yaml/separators.rs",
        "a_byte_order_mark_inside_a_document_is_refused",
    ),
    ("list of one kind", "crates/inject/src/workload.rs", "what_cannot_be_searched_for_workloads_is_refused"),
    ("validation in a pod that the plugin skips", "crates/cnictl/tests/inject/startable.rs", "skipped"),
    (
        "application that a template deletes",
        "crates/inject/src/istio/pipeline/tests.rs",
        "an_application_that_no_template_deletes_by_name_remains",
    ),
    (
        "networks that Multus cannot read",
        "crates/inject/src/istio/annotations/networks.rs",
        "what_multus_cannot_read_is_refused_by_the_annotations_name",
    ),
    (
        "probe of the agent's port",
        "crates/inject/src/istio/probes/tests.rs",
        "a_probe_of_the_agents_port_stays_whether_an_annotation_or_the_configuration_sets_the_port",
    ),
    (
        "port that the agent cannot scrape",
        "crates/inject/src/istio/prometheus.rs",
        "a_port_that_the_agent_cannot_scrape_is_refused_by_the_annotations_name",
    ),
    (
        "complex number in a template",
        "crates/gotemplate/src/tests.rs",
        "a_number_without_a_type_ends_only_the_rendering_that_reaches_it",
    ),
    (
        "injected pod that the API server refuses",
        "crates/inject/src/istio/startable/tests.rs",
        "each_field_that_prevents_the_start_is_named",
    ),
    (
        "handler of the pod's own sidecar",
        "crates/inject/src/istio/unions.rs",
        "the_handler_of_the_pods_own_container_replaces_the_templates",
    ),
    ("pod that other settings injected", "crates/cnictl/tests/inject/again.rs", "all_pairs"),
    ("changes between two injections", "crates/cnictl/tests/inject/again/changes.rs", "metrics"),
    ("record of a former injection", "crates/cnictl/tests/inject/again/others.rs", "without_record"),
    ("damaged record of a former injection", "crates/cnictl/tests/inject/again/records.rs", "damaged"),
    (
        "overlay of a sidecar in the other list",
        "crates/inject/src/istio/pipeline/tests.rs",
        "an_overlay_of_the_sidecar_is_merged_into_it_wherever_it_is",
    ),
    (
        "cron job",
        "crates/inject/src/istio/documents/tests.rs",
        "the_pods_of_a_cron_job_have_labels_and_annotations_as_its_job_template",
    ),
    ("deep YAML", "crates/inject/src/yaml/tests/work.rs", "a_document_is_refused_above_its_depth"),
    (
        "repeated keys in deep YAML",
        "crates/inject/src/yaml/tests/work.rs",
        "copies_of_maps_with_repeated_integer_keys_are_bounded_by_their_depth",
    ),
    (
        "request that is too large",
        "crates/webhook/tests/webhook/hostile.rs",
        "six_mebibytes_are_accepted_and_one_byte_more_is_refused",
    ),
    ("request by another method", "crates/webhook/tests/webhook/reviews.rs", "invalid_reviews_get_the_reason"),
    (
        "review over its budget",
        "crates/inject/src/istio/pipeline/tests.rs",
        "a_pod_over_the_budget_is_refused_with_the_reason",
    ),
    ("reason for the pod's author", "crates/webhook/tests/webhook/cluster.rs", "owners_of_refused_pods_get_one_event"),
];
