//! The kinds of errors of the library, by their numbers.

use libgssapi::error::Error;
use sdam_core::auth::GssapiError;
use sdam_core::failure::GssapiProblem;

/// The number from which those of Kerberos count (`ERROR_TABLE_BASE_krb5`): the errors of RFC 4120,
/// section 7.5.9, and from 128 on those of the library itself.
const KERBEROS: i32 = -1_765_328_384;

/// The bits of the major status that say which routine error it is (RFC 2744, section 3.9.1).
const ROUTINE_ERRORS: u32 = 0xff_0000;

/// Says what has failed, and why: in the words of the library, which has them for this thread only
/// until it is called again.
pub(crate) fn error(failure: Error, what: impl FnOnce() -> String) -> GssapiError {
    let problem = problem(failure.major.bits(), failure.minor);
    let of_gssapi = Error { minor: 0, ..failure }.to_string();
    let words = words(&failure.to_string(), &of_gssapi);
    GssapiError::new(problem, format!("{}: {words}", what()))
}

fn problem(major: u32, minor: u32) -> GssapiProblem {
    match minor.cast_signed().wrapping_sub(KERBEROS) {
        // KDC_ERR_NAME_EXP and KDC_ERR_CLIENT_REVOKED
        1 | 18 => GssapiProblem::UserLocked,
        6 => GssapiProblem::UnknownUser,
        7 => GssapiProblem::UnknownService,
        23 => GssapiProblem::PasswordExpired,
        // KDC_ERR_PREAUTH_FAILED; or the reply to a password is not encrypted with it.
        24 => GssapiProblem::PasswordRefused,
        31 if routine(major) == NO_CREDENTIALS => GssapiProblem::PasswordRefused,
        31 => GssapiProblem::ServerUnproven,
        32 => GssapiProblem::TicketExpired,
        // Not valid yet, and KRB_AP_ERR_SKEW.
        33 | 37 => GssapiProblem::ClocksDiffer,
        // KRB5_CC_NOTFOUND and KRB5_FCC_NOFILE
        141 | 195 => GssapiProblem::NoTicket,
        // KRB5_REALM_UNKNOWN, KRB5_KDC_UNREACH and KRB5_REALM_CANT_RESOLVE
        154 | 156 | 220 => GssapiProblem::RealmUnreachable,
        // What else a server of keys answers.
        1..=127 => GssapiProblem::Other,
        _ => match routine(major) {
            // GSS_S_BAD_SIG, GSS_S_DEFECTIVE_TOKEN
            6 | 9 => GssapiProblem::ServerUnproven,
            NO_CREDENTIALS => GssapiProblem::NoTicket,
            // GSS_S_CREDENTIALS_EXPIRED, GSS_S_CONTEXT_EXPIRED
            11 | 12 => GssapiProblem::TicketExpired,
            _ => GssapiProblem::Other,
        },
    }
}

/// GSS_S_NO_CRED
const NO_CREDENTIALS: u32 = 7;

const fn routine(major: u32) -> u32 {
    (major & ROUTINE_ERRORS) >> 16
}

/// Returns what the mechanism says, which is in brackets behind what GSSAPI does, or that if the
/// mechanism says nothing. `without` is the same without a word of the mechanism's: what is in its
/// place, if anything, depends on the library.
fn words(both: &str, without: &str) -> String {
    let same = both.char_indices().zip(without.chars()).find(|((_, a), b)| a != b);
    let end = same.map_or(both.len().min(without.len()), |((at, _), _)| at);
    // Both may have something in brackets, which may begin alike.
    let of_gssapi = match both[..end].rfind(" (") {
        Some(at) if !both[at..end].contains(')') => &both[..at],
        _ => &both[..end],
    };
    let of_mechanism = both[of_gssapi.len()..].trim();
    let of_mechanism = of_mechanism.strip_prefix('(').and_then(|it| it.strip_suffix(')'));
    of_mechanism.filter(|it| !it.is_empty()).unwrap_or(both).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use sdam_core::failure::GssapiProblem;

    use super::{KERBEROS, problem, words};

    /// MIT's and Heimdal's texts for a failure that the mechanism explains, and another.
    #[test]
    fn the_words_are_those_of_the_mechanism() {
        let mit = "Unspecified GSS failure.  Minor code may provide more information";
        assert_eq!(words(&format!("{mit} (Ticket expired)"), mit), "Ticket expired");
        let heimdal = "Miscellaneous failure (see text)";
        let both = format!("{heimdal} (unable to reach any KDC)");
        assert_eq!(words(&both, heimdal), "unable to reach any KDC");
        for without in ["No ticketunknown GSSAPI(Minor) error code(0)\n", "No ticket (Unknown)"] {
            assert_eq!(words("No ticket (Unheard of)", without), "Unheard of", "{without}");
        }
        assert_eq!(words("A token was invalid", "A token was invalid"), "A token was invalid");
        assert_eq!(
            words("A token was invalid ()", "A token was invalid"),
            "A token was invalid ()"
        );
    }

    #[test]
    fn each_error_has_its_kind() {
        for (routine, minor, expected) in [
            (13, Some(7), GssapiProblem::UnknownService),
            (7, Some(6), GssapiProblem::UnknownUser),
            (7, Some(24), GssapiProblem::PasswordRefused),
            (7, Some(31), GssapiProblem::PasswordRefused),
            (13, Some(31), GssapiProblem::ServerUnproven),
            (13, Some(32), GssapiProblem::TicketExpired),
            (13, Some(33), GssapiProblem::ClocksDiffer),
            (13, Some(37), GssapiProblem::ClocksDiffer),
            (7, Some(141), GssapiProblem::NoTicket),
            (13, Some(156), GssapiProblem::RealmUnreachable),
            (7, Some(1), GssapiProblem::UserLocked),
            (7, Some(18), GssapiProblem::UserLocked),
            (7, Some(23), GssapiProblem::PasswordExpired),
            (7, Some(12), GssapiProblem::Other),
            (6, None, GssapiProblem::ServerUnproven),
            (9, None, GssapiProblem::ServerUnproven),
            (7, None, GssapiProblem::NoTicket),
            (11, None, GssapiProblem::TicketExpired),
            (13, None, GssapiProblem::Other),
        ] {
            let minor = minor.map_or(0, |minor: i32| (KERBEROS + minor).cast_unsigned());
            assert_eq!(problem(routine << 16, minor), expected, "{routine} {minor}");
        }
    }
}
