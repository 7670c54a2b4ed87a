//! Words that the field has better ones for, in comments, in pages and in texts of sources.

use proc_macro2::{TokenStream, TokenTree};
use syn::{Lit, LitStr};

/// The refused words.
const REFUSED: [&str; 8] =
    ["told", "tell", "tells", "nobody", "whoever", "be it", "in vain", "anew"];

/// The words behind which "be" is an infinitive, as in "it has to be", or a word of its own.
const BEFORE_BE: [&str; 12] = [
    "to", "can", "may", "must", "could", "would", "will", "should", "might", "cannot", "need",
    "not",
];

/// Returns the refused word of a line of comment.
pub fn in_comment(line: &str) -> Option<&'static str> {
    in_prose(line.trim_start().strip_prefix("//")?)
}

/// Returns the refused word of a line of prose. What is quoted is a phrase of a specification, or
/// code.
pub fn in_prose(text: &str) -> Option<&'static str> {
    in_words(&unquoted(text, '"'))
}

/// Returns the text of each literal of a source that is a sentence, or part of one, and has a
/// refused word, with that word. One word alone is a name.
///
/// # Errors
///
/// The source is no Rust.
pub fn in_literals(source: &str) -> Result<Vec<(String, &'static str)>, proc_macro2::LexError> {
    let mut found = Vec::new();
    literals(source.parse()?, &mut found);
    let refused = |text: String| in_words(&text).map(|word| (text, word));
    Ok(found.into_iter().filter(|text| text.trim().contains(' ')).filter_map(refused).collect())
}

/// Collects the literals that are texts, but for those of docs, which are comments.
fn literals(tokens: TokenStream, found: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let mut first = group.stream().into_iter();
                let is_doc = matches!(
                    (first.next(), first.next()),
                    (Some(TokenTree::Ident(name)), Some(TokenTree::Punct(mark)))
                        if name == "doc" && mark.as_char() == '='
                );
                if !is_doc {
                    literals(group.stream(), found);
                }
            }
            TokenTree::Literal(literal) => {
                if let Lit::Str(text) = Lit::new(literal) {
                    found.push(LitStr::value(&text));
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

fn unquoted(text: &str, mark: char) -> String {
    text.split(mark).step_by(2).collect()
}

fn in_words(text: &str) -> Option<&'static str> {
    let words = unquoted(text, '`').to_lowercase().replace(": ", " : ");
    let words = words.replace(|c: char| ",.;!?()".contains(c), " , ");
    let words: Vec<&str> = words.split_whitespace().collect();
    let padded = format!(" {} ", words.join(" "));
    let refused = REFUSED.into_iter().find(|word| padded.contains(&format!(" {word} ")));
    refused.or_else(|| has_be(&words).then_some("has .. be"))
}

/// Returns whether "has" goes with "be", as in "has the command be written".
fn has_be(words: &[&str]) -> bool {
    let begins = |(at, word): (usize, &&str)| matches!(*word, "has" | "have").then_some(at + 1);
    words.iter().enumerate().filter_map(begins).any(|at| {
        let rest = words[at..].iter().take(5);
        let between: Vec<_> = rest.take_while(|word| **word != "," && **word != ":").collect();
        let be = between.iter().position(|word| **word == "be");
        be.is_some_and(|be| be > 0 && !between[..be].iter().any(|word| BEFORE_BE.contains(word)))
    })
}

#[cfg(test)]
mod tests {
    use super::{in_comment, in_literals, in_prose};

    #[test]
    fn words_are_refused_in_comments() {
        assert_eq!(in_comment("    /// Nobody is there."), Some("nobody"));
        assert_eq!(in_comment("// One that waits, be it"), Some("be it"));
        assert_eq!(in_comment("/// \"How to Tell Whether\" of a specification; `is_told`."), None);
        assert_eq!(in_comment("/// So it would be: it is; call [`tell`](Self::tell)."), None);
        assert_eq!(in_comment("let told = tell();"), None);
    }

    #[test]
    fn has_goes_with_a_participle() {
        assert_eq!(in_prose("Has the next command be written"), Some("has .. be"));
        assert_eq!(in_prose("What it has to be, and what it has, be careful"), None);
        assert_eq!(in_prose("a client that has left may be forgotten"), None);
    }

    #[test]
    fn sentences_are_judged_wherever_they_are_in_a_source() {
        let source = r##"
            #[doc = "Told to nobody."]
            #[error("nobody {0}")]
            fn f() {
                let told = "nobody";
                panic!("it was \
                        told {told}");
                g(r#"it `tells` that"#, b"is told");
                h(doc! {}, "told of it");
            }
        "##;
        let found = in_literals(source).expect("it is Rust");
        let text = |text: &str| text.to_owned();
        let all =
            [("nobody {0}", "nobody"), ("it was told {told}", "told"), ("told of it", "told")];
        assert_eq!(found, all.map(|(found, word)| (text(found), word)));
    }
}
