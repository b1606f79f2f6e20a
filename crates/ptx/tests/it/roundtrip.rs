//! What is printed parses to the same tree.

use proptest::prelude::*;

use crate::{corpus, trees};

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn of_any_tree(module in trees::module()) {
        let text = module.to_string();
        match ptx::parse(&text) {
            Ok(parsed) => prop_assert_eq!(parsed, module, "printed as\n{}", text),
            Err(errors) => prop_assert!(false, "{}\nin\n{}", errors, text),
        }
    }
}

#[test]
fn of_the_corpus() {
    for (name, source) in corpus::files() {
        let module = ptx::parse(&source).expect("the corpus parses");
        let text = module.to_string();
        match ptx::parse(&text) {
            Ok(parsed) => assert_eq!(parsed, module, "{name} printed as\n{text}"),
            Err(errors) => panic!("{name}: {errors}\nin\n{text}"),
        }
    }
}

/// Printing settles: the second text is the first.
#[test]
fn of_the_text_itself() {
    for (name, source) in corpus::files() {
        let once = ptx::parse(&source).expect("the corpus parses").to_string();
        let twice = ptx::parse(&once)
            .expect("what is printed parses")
            .to_string();
        assert_eq!(once, twice, "{name}");
    }
}
