//! The service account whose token the plugin's kubeconfig contains: the daemon's own or the plugin's.

use tokio::sync::watch;

use super::kubeconfig::Account;
use super::read::Unread;

/// A bearer token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Trims white space; `None` if the rest is empty or contains white space or control characters.
    pub fn new(text: impl AsRef<str>) -> Option<Self> {
        let text = text.as_ref().trim();
        let is_invalid = text.is_empty() || text.chars().any(|c| c.is_control() || c.is_whitespace());
        (!is_invalid).then(|| Self(text.to_owned()))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The state of the request for a token of the plugin's service account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Issued {
    /// The API server has not responded yet.
    Pending,
    Token(Token),
    /// No valid token, with the reason.
    Refused(String),
}

/// The service account whose token the kubeconfig contains.
#[derive(Debug, Clone)]
pub enum Identity {
    /// The daemon's service account, whose token is a file.
    Daemon,
    /// The plugin's service account, whose token the daemon requests.
    Plugin(watch::Receiver<Issued>),
}

impl Identity {
    /// Replaces the token of the daemon's `own` account by this identity's token.
    pub(super) fn account(&self, own: Result<Account, NoAccount>) -> Result<Account, NoAccount> {
        let Self::Plugin(issued) = self else { return own };
        match &*issued.borrow() {
            Issued::Token(Token(token)) => own.map(|account| Account { token: token.clone(), ..account }),
            Issued::Pending => Err(NoAccount::NotIssued("no token has been requested yet".to_owned())),
            Issued::Refused(why) => Err(NoAccount::NotIssued(why.clone())),
        }
    }

    /// Returns after the token has changed; never if it cannot change.
    pub(super) async fn changed(&mut self) {
        let changed = match self {
            Self::Plugin(issued) => issued.changed().await.is_ok(),
            Self::Daemon => false,
        };
        if !changed {
            std::future::pending::<()>().await;
        }
    }
}

/// The kubeconfig's token or CA is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAccount {
    /// The service account's files cannot be read.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// The API server has issued no token for the plugin.
    #[error("no token for the plugin's kubeconfig: {0}")]
    NotIssued(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugins_own_token_replaces_the_daemons() {
        let own = || Ok(Account { token: "daemon".to_owned(), ca: Some(b"ca".to_vec()) });
        assert_eq!(Identity::Daemon.account(own()).unwrap().token, "daemon");
        let (sender, issued) = watch::channel(Issued::Pending);
        let plugin = Identity::Plugin(issued);
        assert!(matches!(plugin.account(own()), Err(NoAccount::NotIssued(_))), "never the daemon's instead");
        sender.send_replace(Issued::Token(Token::new(" plugin\n").unwrap()));
        assert_eq!(plugin.account(own()).unwrap(), Account { token: "plugin".to_owned(), ca: Some(b"ca".to_vec()) });
        sender.send_replace(Issued::Refused("403".to_owned()));
        assert_eq!(plugin.account(own()).unwrap_err().to_string(), "no token for the plugin's kubeconfig: 403");
        assert!(["", " ", "a b", "a\u{7}"].iter().all(|text| Token::new(text).is_none()));
    }

    #[test]
    fn debug_output_omits_the_token() {
        assert_eq!(format!("{:?}", Issued::Token(Token::new("secret").unwrap())), "Token(Token(…))");
    }
}
