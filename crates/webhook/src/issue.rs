//! Issues certificates without an external CA: makes a new authority for each certificate, which signs only this
//! certificate.
//!
//! The authority's key is discarded after one signature, so that it can sign nothing else. The former authority stays
//! in the bundle until the next renewal, so that clients trust both certificates meanwhile. `certificates` calls this
//! module; the clock is an argument.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::pki_types::UnixTime;
use serde::{Deserialize, Serialize};

use super::identity::{self, Identity};

/// A certificate that replicas share, serialized with the keys of a TLS Secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// The authorities in PEM, the newest first.
    #[serde(rename = "ca.crt")]
    pub authorities: String,
    /// The certificate in PEM.
    #[serde(rename = "tls.crt")]
    pub certificate: String,
    /// The private key in PEM.
    #[serde(rename = "tls.key")]
    pub key: String,
}

/// The duration for which a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime(pub Duration);

/// The time before the present at which a certificate's validity starts, so that clients whose clocks are behind accept
/// the certificate.
const BEFORE: Duration = Duration::from_secs(3600);

impl Lifetime {
    /// Returns the remaining validity below which a certificate is renewed.
    pub fn margin(self) -> Duration {
        self.0 / 3
    }

    /// Returns the interval between checks of a certificate.
    pub fn interval(self) -> Duration {
        (self.0 / 100).clamp(Duration::from_millis(100), Duration::from_secs(600))
    }
}

impl Issued {
    /// Issues a certificate for these names, the first of which becomes the subject. The bundle also contains the
    /// authority of `former`.
    ///
    /// # Errors
    /// A name is invalid, or the system provides no randomness.
    pub fn new(
        names: &[String],
        lifetime: Lifetime,
        now: UnixTime,
        former: Option<&Self>,
    ) -> Result<Self, rcgen::Error> {
        let (authority_key, key) = (KeyPair::generate()?, KeyPair::generate()?);
        let mut authority = valid(CertificateParams::default(), lifetime, now);
        authority.distinguished_name.push(DnType::CommonName, "sidecar-injector");
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let root = authority.self_signed(&authority_key)?;
        let mut leaf = valid(CertificateParams::new(names)?, lifetime, now);
        leaf.distinguished_name.push(DnType::CommonName, names.first().map_or("sidecar-injector", String::as_str));
        leaf.use_authority_key_identifier_extension = true;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = leaf.signed_by(&key, &Issuer::from_params(&authority, &authority_key))?.pem();
        let mut authorities = root.pem();
        authorities += former.map(|former| first(&former.authorities)).unwrap_or_default();
        Ok(Self { authorities, certificate, key: key.serialize_pem() })
    }

    /// Checks that the certificate is valid for all of these names, and remains so for the margin of `lifetime`.
    pub fn lasts(&self, names: &[String], lifetime: Lifetime, now: UnixTime) -> Result<(), identity::Error> {
        let identity = self.identity()?;
        let then = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs()) + lifetime.margin());
        names.iter().try_for_each(|name| identity.trusted(self.authorities.as_bytes(), name, then))
    }

    /// Parses the certificate with its key and authorities.
    ///
    /// # Errors
    /// The fields are not a certificate, its key and its authorities in PEM.
    pub fn identity(&self) -> Result<Identity, identity::Error> {
        Identity::parse(self.certificate.as_bytes(), self.key.as_bytes(), self.authorities.as_bytes())
    }
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

fn valid(mut params: CertificateParams, lifetime: Lifetime, now: UnixTime) -> CertificateParams {
    let now = Duration::from_secs(now.as_secs());
    params.not_before = date_time_ymd(1970, 1, 1) + now.saturating_sub(BEFORE);
    params.not_after = date_time_ymd(1970, 1, 1) + (now + lifetime.0);
    params
}

/// Returns the first certificate in a bundle, in PEM.
fn first(bundle: &str) -> &str {
    const END: &str = "-----END CERTIFICATE-----";
    bundle.find(END).map_or(bundle, |at| bundle.get(..=at + END.len()).unwrap_or(bundle))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Lifetime = Lifetime(Duration::from_secs(9000));

    fn names() -> Vec<String> {
        vec!["injector.istio-system.svc".to_owned()]
    }

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(1_700_000_000 + seconds))
    }

    #[test]
    fn a_certificate_is_renewed_before_it_expires_and_for_new_names() {
        let issued = Issued::new(&names(), LIFETIME, at(0), None).unwrap();
        let lasts = |names: &[String], now| issued.lasts(names, LIFETIME, now).map_err(|error| error.to_string());
        assert_eq!(lasts(&names(), at(5990)), Ok(()));
        assert!(lasts(&names(), at(6010)).unwrap_err().contains("expired"), "{:?}", lasts(&names(), at(6010)));
        let other = lasts(&["other.istio-system.svc".to_owned()], at(0)).unwrap_err();
        assert!(other.contains("not valid for name"), "{other}");
    }

    #[test]
    fn the_end_of_a_certificate_is_read_from_it() {
        let issued = Issued::new(&names(), LIFETIME, at(0), None).unwrap();
        assert_eq!(issued.identity().unwrap().not_after(), Some(1_700_009_000));
    }

    #[test]
    fn the_former_certificate_is_trusted_until_the_next_renewal() {
        let first = Issued::new(&names(), LIFETIME, at(0), None).unwrap();
        let second = Issued::new(&names(), LIFETIME, at(10), Some(&first)).unwrap();
        let third = Issued::new(&names(), LIFETIME, at(20), Some(&second)).unwrap();
        let trusts = |bundle: &Issued, who: &Issued| {
            who.identity().unwrap().trusted(bundle.authorities.as_bytes(), &names()[0], at(30)).is_ok()
        };
        assert!(trusts(&second, &first) && trusts(&second, &second));
        assert!(trusts(&third, &second) && trusts(&third, &third));
        assert!(!trusts(&third, &first) && !trusts(&first, &second));
    }
}
