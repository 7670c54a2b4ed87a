//! Rounds, in which each measurement is taken once.

use crate::Failure;

/// Takes each measurement as often as there are rounds, and returns the samples of each.
///
/// Measurements are interleaved, so that a noisy minute is noisy for all of them, and their order
/// is reversed in every second round: the first one may find the machine in another state.
///
/// # Errors
///
/// Fails with the first measurement that does.
pub fn rounds<T, S>(
    count: usize,
    turns: &[T],
    mut measure: impl FnMut(&T) -> Result<S, Failure>,
) -> Result<Vec<Vec<S>>, Failure> {
    let mut samples: Vec<Vec<S>> = turns.iter().map(|_| Vec::new()).collect();
    for round in 1..=count {
        eprintln!("round {round} of {count}");
        let mut order: Vec<_> = turns.iter().zip(&mut samples).collect();
        if round % 2 == 0 {
            order.reverse();
        }
        for (turn, samples) in order {
            samples.push(measure(turn)?);
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::rounds;

    #[test]
    fn turns_are_interleaved_and_the_other_way_around_in_each_second_round() {
        let mut measured = Vec::new();
        let samples = rounds(3, &['a', 'b', 'c'], |turn| {
            measured.push(*turn);
            Ok((*turn, measured.len()))
        });
        assert_eq!(measured.iter().collect::<String>(), "abccbaabc");
        let expected = [
            [('a', 1), ('a', 6), ('a', 7)],
            [('b', 2), ('b', 5), ('b', 8)],
            [('c', 3), ('c', 4), ('c', 9)],
        ];
        assert_eq!(samples.unwrap(), expected);
    }

    #[test]
    fn a_failed_measurement_ends_the_run() {
        let mut taken = 0;
        let ended = rounds(2, &[1, 2], |turn| {
            taken += 1;
            if *turn == 2 { Err("it does not answer".into()) } else { Ok(()) }
        });
        assert_eq!(ended.unwrap_err().to_string(), "it does not answer");
        assert_eq!(taken, 2);
    }
}
