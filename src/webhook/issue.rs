//! Self-signed certificates: an authority of a single use, and the one certificate that it vouches for.
//!
//! The authority's key is forgotten once it has signed, so nobody can ever sign with it again. Whoever knew the authority
//! before goes on knowing it: the former one stays in the bundle until the next renewal. `keep` calls it; the clock is an
//! argument.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::pki_types::UnixTime;
use serde::{Deserialize, Serialize};

use super::identity::{self, Identity};

/// What replicas share, under the names that a TLS secret has.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// Authorities, the newest first; PEM.
    #[serde(rename = "ca.crt")]
    pub authorities: String,
    /// The certificate; PEM.
    #[serde(rename = "tls.crt")]
    pub certificate: String,
    /// Its key; PEM.
    #[serde(rename = "tls.key")]
    pub key: String,
}

/// How long a certificate is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime(pub Duration);

/// Clocks of a cluster differ by less.
const BEFORE: Duration = Duration::from_secs(3600);

impl Lifetime {
    /// It is renewed when less than this is left.
    pub fn margin(self) -> Duration {
        self.0 / 3
    }

    /// How often it is looked at.
    pub fn interval(self) -> Duration {
        (self.0 / 100).clamp(Duration::from_millis(100), Duration::from_secs(600))
    }
}

impl Issued {
    /// Makes a certificate for these names (the first one is that of the subject), and lets `former` go on being believed.
    ///
    /// # Errors
    /// A name is none, or there is no randomness.
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

    /// Whether it will still do for all these names when less than the margin of its life is left.
    pub fn lasts(&self, names: &[String], lifetime: Lifetime, now: UnixTime) -> Result<(), identity::Error> {
        let identity = self.identity()?;
        let then = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs()) + lifetime.margin());
        names.iter().try_for_each(|name| identity.trusted(self.authorities.as_bytes(), name, then))
    }

    /// What TLS presents.
    ///
    /// # Errors
    /// Somebody else has written something else.
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

/// The first certificate of a bundle, as text.
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
    fn it_is_renewed_before_its_end_and_for_new_names() {
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
    fn the_former_is_believed_until_the_next_renewal() {
        let first = Issued::new(&names(), LIFETIME, at(0), None).unwrap();
        let second = Issued::new(&names(), LIFETIME, at(10), Some(&first)).unwrap();
        let third = Issued::new(&names(), LIFETIME, at(20), Some(&second)).unwrap();
        let believes = |bundle: &Issued, who: &Issued| {
            who.identity().unwrap().trusted(bundle.authorities.as_bytes(), &names()[0], at(30)).is_ok()
        };
        assert!(believes(&second, &first) && believes(&second, &second));
        assert!(believes(&third, &second) && believes(&third, &third));
        assert!(!believes(&third, &first) && !believes(&first, &second));
    }
}
