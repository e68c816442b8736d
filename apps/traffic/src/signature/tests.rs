use proptest::prelude::*;

use super::*;

fn only(form: SignatureForm) -> FormSet {
    FormSet::from_iter([form])
}

/// A frame of `front`, `payload` and a signature that covers the payload if it can.
fn frame(
    form: SignatureForm,
    stream: u16,
    sequence: u64,
    time_ns: u64,
    front: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = [front, payload, &vec![0; form.bytes()]].concat();
    let start = frame.len() - form.bytes();
    Signer::new(form, stream, payload).unwrap().sign(sequence, time_ns, &mut frame[start..]);
    frame
}

#[test]
fn each_form_is_laid_out_as_documented() {
    let written = |form| frame(form, 0x5a, 0x0102_0304_0506_0708, 0x1112_1314_1516_1718, &[], b"abc");
    let full = written(SignatureForm::Full);
    assert_eq!(
        &full[3..27],
        b"\xa7\x52\x96\x1e\0\x03\0\x5a\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x15\x16\x17\x18"
    );
    let crc = ::crc32c::crc32c_append(::crc32c::crc32c(b"abc"), &full[7..27]);
    assert_eq!(full[27..], crc.to_be_bytes());

    let compact = written(SignatureForm::Compact);
    assert_eq!(&compact[3..17], b"\xb5\xe9\0\x5a\x04\x05\x06\x07\x08\x14\x15\x16\x17\x18");
    assert_eq!(compact[17..], ::crc32c::crc32c_append(COMPACT_SEED, &compact[5..17]).to_be_bytes());

    assert_eq!(&written(SignatureForm::Short)[3..11], b"\x5a\x06\x07\x08\x15\x16\x17\x18");
    assert_eq!(&written(SignatureForm::Tiny)[3..7], b"\x5a\x06\x07\x08");
}

#[test]
fn the_longest_form_that_fits_is_chosen() {
    let chosen: Vec<_> = [0, 5, 6, 9, 10, 17, 18, 27, 28, 9000].map(SignatureForm::longest_within).into();
    let [full, compact, short, tiny] = SignatureForm::ALL.map(Some);
    assert_eq!(chosen, [None, None, tiny, tiny, short, short, compact, compact, full, full]);
    for form in SignatureForm::ALL {
        assert_eq!(SignatureForm::longest_within(form.bytes()), Some(form));
    }
}

#[test]
fn values_too_large_for_a_form_are_refused() {
    let error = Signer::new(SignatureForm::Short, 256, &[]).unwrap_err().to_string();
    assert!(error.contains("stream: 256") && error.contains("0 to 255"), "{error}");
    let error = Signer::new(SignatureForm::Full, 0, &[0; 65536]).unwrap_err().to_string();
    assert!(error.contains("covered: 65536") && error.contains("0 to 65535"), "{error}");
    assert!(Signer::new(SignatureForm::Compact, u16::MAX, &[0; 65536]).is_ok());
}

#[test]
fn every_flipped_bit_of_signature_and_covered_bytes_is_corruption() {
    for (form, payload) in [(SignatureForm::Full, &[7; 40][..]), (SignatureForm::Compact, &[])] {
        for forms in [only(form), FormSet::ALL] {
            let intact = frame(form, 3, 1 << 30, 1 << 50, &[0x55; 42], payload);
            for bit in 42 * 8..intact.len() * 8 {
                let mut frame = intact.clone();
                frame[bit / 8] ^= 1 << (bit % 8);
                assert!(
                    matches!(read_signature(&frame, forms), SignatureReading::Corrupted { .. }),
                    "{form:?} bit {bit}"
                );
            }
        }
    }
}

#[test]
fn frames_of_one_repeated_byte_are_foreign() {
    for byte in 0..=255 {
        for len in 0..100 {
            assert_eq!(
                read_signature(&vec![byte; len], FormSet::ALL),
                SignatureReading::Foreign,
                "{byte} {len}"
            );
        }
    }
}

#[test]
fn bytes_behind_the_signature_make_it_foreign() {
    for form in SignatureForm::ALL {
        let mut frame = frame(form, 1, 2, 3, &[0; 42], &[]);
        frame.push(0);
        assert_eq!(read_signature(&frame, FormSet::ALL), SignatureReading::Foreign);
    }
}

#[test]
fn a_payload_like_a_compact_magic_does_not_make_shorter_forms_corrupted() {
    for form in [SignatureForm::Short, SignatureForm::Tiny] {
        let mut front = vec![0; 42];
        let magic_at = front.len() + form.bytes() - SignatureForm::Compact.bytes();
        front[magic_at..magic_at + 2].copy_from_slice(&COMPACT_MAGIC.to_be_bytes());
        let frame = frame(form, 1, 2, 3, &front, &[]);
        assert!(
            matches!(read_signature(&frame, FormSet::ALL), SignatureReading::Intact(read) if read.form == form)
        );
        assert_eq!(
            read_signature(&frame, only(SignatureForm::Compact)),
            SignatureReading::Corrupted { stream: 0 }
        );
    }
}

#[test]
fn numbers_wrap_at_the_end_of_their_bits() {
    for form in SignatureForm::ALL {
        let read = |sequence_low, timestamp_low| Signature { form, stream: 0, sequence_low, timestamp_low };
        let bits = form.sequence_bits();
        if bits < 64 {
            let range = 1 << bits;
            assert_eq!(read(0, 0).sequence(range - 1), range);
            assert_eq!(read(range - 1, 0).sequence(range), range - 1);
            assert_eq!(read(range - 1, 0).sequence(0), range - 1, "there are no numbers below 0");
            assert_eq!(read(5, 0).sequence(3 * range + range / 2), 3 * range + 5);
            assert_eq!(read(5, 0).sequence(3 * range + range / 2 + 6), 4 * range + 5);
        }
        let bits = form.timestamp_bits();
        if bits == 0 {
            assert_eq!(read(0, 7).timestamp_ns(7), None);
        } else if bits < 64 {
            let range = 1 << bits;
            assert_eq!(read(0, range - 1).timestamp_ns(range), Some(range - 1));
            assert_eq!(read(0, 0).timestamp_ns(range - 1), Some(range), "the clocks differ by 1 ns");
            assert_eq!(read(0, 0).timestamp_ns(range / 16 * 15), Some(0));
        }
        for number in [0, 1, u64::MAX] {
            assert_eq!(read(low(number, form.sequence_bits()), 0).sequence(number), number);
        }
    }
}

fn form() -> impl Strategy<Value = SignatureForm> {
    prop::sample::select(&SignatureForm::ALL)
}

proptest! {
    #[test]
    fn written_values_are_read_back(
        form in form(), stream: u16, sequence: u64, time_ns: u64,
        front in prop::collection::vec(any::<u8>(), 0..60),
        payload in prop::collection::vec(any::<u8>(), 0..200),
        late in -1000_i64..1000, latency_ns in 0..1_000_000_000_u64,
    ) {
        let stream = stream & form.max_stream();
        let frame = frame(form, stream, sequence, time_ns, &front, &payload);
        let SignatureReading::Intact(read) = read_signature(&frame, only(form)) else {
            return Err(TestCaseError::fail("not intact"));
        };
        prop_assert_eq!((read.form, read.stream), (form, stream));
        // The sequence number is not near its limits.
        prop_assume!((1000..u64::MAX - 1000).contains(&sequence) && time_ns < u64::MAX - latency_ns);
        prop_assert_eq!(read.sequence(sequence.saturating_add_signed(late)), sequence);
        let timestamp = read.timestamp_ns(time_ns + latency_ns);
        prop_assert_eq!(timestamp, form.carries_timestamp().then_some(time_ns));
    }

    #[test]
    fn all_readers_agree_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        if read_signature(&bytes, FormSet::ALL) == SignatureReading::Foreign {
            for form in SignatureForm::ALL {
                prop_assert_eq!(read_signature(&bytes, only(form)), SignatureReading::Foreign);
            }
        }
    }
}
