//! Whose token the plugin's kubeconfig holds: the daemon's own, or that of the plugin's service account.

use tokio::sync::watch;

use super::kubeconfig::Account;
use super::read::Unread;

/// A bearer token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A token without white space around it; `None` for what cannot be one.
    pub fn new(text: impl AsRef<str>) -> Option<Self> {
        let text = text.as_ref().trim();
        let odd = text.is_empty() || text.chars().any(|c| c.is_control() || c.is_whitespace());
        (!odd).then(|| Self(text.to_owned()))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// How far the token of the plugin's own service account is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Issued {
    /// The API server has not answered yet.
    Awaited,
    /// This one.
    Token(Token),
    /// There is none, and why.
    Refused(String),
}

/// Whose token the kubeconfig holds.
#[derive(Debug, Clone)]
pub enum Identity {
    /// The daemon's own, from its service account's directory.
    Daemon,
    /// That of the plugin's service account.
    Plugin(watch::Receiver<Issued>),
}

impl Identity {
    /// The account with the token of this identity.
    pub(super) fn of(&self, own: Result<Account, NoAccount>) -> Result<Account, NoAccount> {
        let Self::Plugin(issued) = self else { return own };
        match &*issued.borrow() {
            Issued::Token(Token(token)) => own.map(|account| Account { token: token.clone(), ..account }),
            Issued::Awaited => Err(NoAccount::NotIssued("the API server has not been asked yet".to_owned())),
            Issued::Refused(why) => Err(NoAccount::NotIssued(why.clone())),
        }
    }

    /// Returns when the token has changed.
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

/// Why there is nothing to write into the kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAccount {
    /// The service account's directory.
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
        assert_eq!(Identity::Daemon.of(own()).unwrap().token, "daemon");
        let (sender, issued) = watch::channel(Issued::Awaited);
        let plugin = Identity::Plugin(issued);
        assert!(matches!(plugin.of(own()), Err(NoAccount::NotIssued(_))), "never the daemon's instead");
        sender.send_replace(Issued::Token(Token::new(" plugin\n").unwrap()));
        assert_eq!(plugin.of(own()).unwrap(), Account { token: "plugin".to_owned(), ca: Some(b"ca".to_vec()) });
        sender.send_replace(Issued::Refused("403".to_owned()));
        assert_eq!(plugin.of(own()).unwrap_err().to_string(), "no token for the plugin's kubeconfig: 403");
        assert!(["", " ", "a b", "a\u{7}"].iter().all(|text| Token::new(text).is_none()));
    }

    #[test]
    fn no_debug_output_shows_the_token() {
        assert_eq!(format!("{:?}", Issued::Token(Token::new("secret").unwrap())), "Token(Token(…))");
    }
}
