//! Tests of the store in a directory, which several processes may use.

use std::fs;

use super::*;

fn issued(key: &str) -> Issued {
    Issued { authorities: "a".to_owned(), certificate: "c".to_owned(), key: key.to_owned() }
}

async fn loaded(store: &CertificateStore) -> Found {
    store.load().await.unwrap()
}

#[tokio::test]
async fn invalid_content_of_the_file_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let store = CertificateStore::Directory(dir.path().to_owned());
    for content in ["", "{", "[1]", "{\"tls.crt\": \"c\"}"] {
        fs::write(dir.path().join(FILE), content).unwrap();
        let found = loaded(&store).await;
        assert_eq!(found.issued, None, "{content:?}");
        store.save(&issued(content), found).await.unwrap();
        assert_eq!(loaded(&store).await.issued, Some(issued(content)));
    }
}

#[tokio::test]
async fn a_process_does_not_overwrite_what_another_has_written_since() {
    let dir = tempfile::tempdir().unwrap();
    let store = CertificateStore::Directory(dir.path().to_owned());
    for kept in ["first", "renewed"].map(issued) {
        let (first, second) = (loaded(&store).await, loaded(&store).await);
        store.save(&kept, first).await.unwrap();
        let error = store.save(&issued("second"), second).await.unwrap_err();
        assert!(matches!(error, Error::Conflict), "{error}");
        assert_eq!(loaded(&store).await.issued, Some(kept));
    }
    let before = loaded(&store).await;
    fs::remove_file(dir.path().join(FILE)).unwrap();
    let error = store.save(&issued("second"), before).await.unwrap_err();
    assert!(matches!(error, Error::Conflict), "{error}");
    let locked = fs::File::open(dir.path()).unwrap();
    locked.lock().unwrap();
    let before = loaded(&store).await;
    let error = store.save(&issued("second"), before.clone()).await.unwrap_err();
    assert!(matches!(error, Error::Conflict), "{error}");
    drop(locked);
    store.save(&issued("second"), before).await.unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
