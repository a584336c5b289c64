// The clients of JavaScript, with their defaults: clients.mjs PACKAGE URL ACCESS SECRET BUCKET.
import assert from 'node:assert/strict';
import { Readable } from 'node:stream';

const [name, url, access, secret, Bucket] = process.argv.slice(2);
const large = Buffer.alloc(20 << 20, 'abcdefghij');
const all = async (stream) => Buffer.concat(await Array.fromAsync(stream));

async function sdk() {
  const { S3 } = await import('@aws-sdk/client-s3');
  const { GetObjectCommand } = await import('@aws-sdk/client-s3');
  const { Upload } = await import('@aws-sdk/lib-storage');
  const { getSignedUrl } = await import('@aws-sdk/s3-request-presigner');
  const { createPresignedPost } = await import('@aws-sdk/s3-presigned-post');
  const credentials = { accessKeyId: access, secretAccessKey: secret };
  const s3 = new S3({ endpoint: url, region: 'us-east-1', forcePathStyle: true, credentials });
  await s3.createBucket({ Bucket });
  await s3.putObject({ Bucket, Key: 'small', Body: 'x', Metadata: { who: 'me' } });
  await new Upload({ client: s3, params: { Bucket, Key: 'large', Body: Readable.from([large]) } }).done();
  const got = await s3.getObject({ Bucket, Key: 'large' });
  assert(large.equals(Buffer.from(await got.Body.transformToByteArray())));
  const signed = await getSignedUrl(s3, new GetObjectCommand({ Bucket, Key: 'small' }));
  assert.equal(await (await fetch(signed)).text(), 'x');
  const post = await createPresignedPost(s3, { Bucket, Key: 'form' });
  const form = new FormData();
  Object.entries(post.fields).forEach(([field, value]) => form.append(field, value));
  form.append('file', 'posted');
  assert.equal((await fetch(post.url, { method: 'POST', body: form })).status, 204);
  await s3.copyObject({ Bucket, Key: 'copy', CopySource: `${Bucket}/form` });
  const keys = (await s3.listObjectsV2({ Bucket })).Contents.map(({ Key }) => Key);
  assert.deepEqual(keys, ['copy', 'form', 'large', 'small']);
  await s3.deleteObjects({ Bucket, Delete: { Objects: keys.map((Key) => ({ Key })) } });
  await s3.deleteBucket({ Bucket });
}

async function minio() {
  const { Client } = await import('minio');
  const { hostname, port } = new URL(url);
  const s3 = new Client({ endPoint: hostname, port: Number(port), useSSL: false, accessKey: access, secretKey: secret });
  await s3.makeBucket(Bucket);
  // In parts: larger than 64 MiB.
  const parts = Buffer.concat([large, large, large, large]);
  await s3.putObject(Bucket, 'large', parts, parts.length, { who: 'me' });
  assert(parts.equals(await all(await s3.getObject(Bucket, 'large'))));
  assert.equal((await s3.statObject(Bucket, 'large')).metaData.who, 'me');
  assert.deepEqual((await all(await s3.getPartialObject(Bucket, 'large', 5, 4))).toString(), 'fghi');
  const keys = (await Array.fromAsync(s3.listObjectsV2(Bucket, '', true))).map((one) => one.name);
  assert.deepEqual(keys, ['large']);
  await s3.removeObjects(Bucket, keys);
  await s3.removeBucket(Bucket);
}

Array.fromAsync ??= async (stream) => {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
};
await (name === 'minio' ? minio() : sdk());
