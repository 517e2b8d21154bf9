//! Tests the S3 client against a server that checks signatures and policies (moto).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod moto;

use bytes::Bytes;
use gc_external::cloud::{Credentials, S3, S3Error, S3Options, StoredObject};
use moto::Moto;

/// Creates two buckets, and a user who may use one of them; after that, every request is checked.
const SETUP: &str = "\
import json, urllib.request
def client(of): return boto3.client(of, endpoint_url=url, region_name='eu-central-1', aws_access_key_id='k', aws_secret_access_key='s')
for bucket in ('records', 'other'):
    client('s3').create_bucket(Bucket=bucket, CreateBucketConfiguration={'LocationConstraint': 'eu-central-1'})
iam = client('iam')
iam.create_user(UserName='recorder')
arns = ['arn:aws:s3:::records', 'arn:aws:s3:::records/*']
statement = {'Effect': 'Allow', 'Action': 's3:*', 'Resource': arns}
iam.put_user_policy(UserName='recorder', PolicyName='records',
    PolicyDocument=json.dumps({'Version': '2012-10-17', 'Statement': [statement]}))
key = iam.create_access_key(UserName='recorder')['AccessKey']
urllib.request.urlopen(urllib.request.Request(url + '/moto-api/reset-auth', data=b'0', headers={'Content-Type': 'text/plain'}, method='POST'))
print(key['AccessKeyId'], key['SecretAccessKey'])";

#[tokio::test]
async fn objects_of_a_bucket_are_written_listed_read_and_deleted() {
    let Some(moto) = Moto::start().await else { return };
    let keys = moto.script(SETUP);
    let with = |bucket: &str, secret_key: &str| {
        let (access_key, secret_key) = (keys[0].clone(), secret_key.to_owned());
        S3::new(S3Options {
            endpoint: Some(moto.url.clone()),
            credentials: Some(Credentials { access_key, secret_key, session_token: None }),
            ..S3Options::new(bucket, "eu-central-1")
        })
        .unwrap()
    };
    let s3 = with("records", &keys[1]);
    let body = |text: &str| Bytes::from(text.to_owned());
    // Names that must be escaped in the path, and signed as escaped.
    let names = ["shop/a b$&+ü=.jsonl", "shop/deleted-1-2-ab-0.jsonl", "shop/~-_.(x)"];
    for name in names {
        s3.put(name, body(name)).await.unwrap();
        assert_eq!(s3.get(name).await.unwrap(), body(name), "{name}");
    }
    s3.put("shopping", body("another prefix")).await.unwrap();
    let listed = s3.list("shop/").await.unwrap();
    let expected = names.map(|name| StoredObject { key: name.to_owned(), size: name.len() as u64 });
    assert_eq!(listed, expected);
    for name in names {
        s3.delete(name).await.unwrap();
        s3.delete(name).await.unwrap();
    }
    assert_eq!(s3.list("shop/").await.unwrap(), []);
    let refused = |answer: Result<Bytes, S3Error>| match answer.unwrap_err() {
        S3Error::Refused { what, status, code, .. } => (what, status, code),
        other => panic!("{other:?}"),
    };
    let of = |what: &str, status: u16, code: &str| (what.to_owned(), status, code.to_owned());
    assert_eq!(refused(s3.get(names[0]).await), of(&format!("GET records/{}", names[0]), 404, "NoSuchKey"));
    assert_eq!(
        refused(with("records", "guessed").get("shopping").await),
        of("GET records/shopping", 403, "SignatureDoesNotMatch")
    );
    assert_eq!(refused(with("other", &keys[1]).get("x").await), of("GET other/x", 403, "AccessDenied"));
}
