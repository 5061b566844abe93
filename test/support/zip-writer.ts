/**
 * A writer of large archives in PyTorch's layout, for tests of size; archives that lie are made by bad-files.ts.
 *
 * @module
 */

const encoder = new TextEncoder();

/** A stored archive of records that all have the content `contentOf` gives. Time and memory are linear in its size. */
export function largeZip(names: readonly string[], contentOf: (k: number) => Uint8Array): Uint8Array<ArrayBuffer> {
  const encoded = names.map((name) => encoder.encode(name));
  const contents = names.map((_, k) => contentOf(k));
  const nameBytes = encoded.reduce((sum, { length }) => sum + length, 0);
  const contentBytes = contents.reduce((sum, { length }) => sum + length, 0);
  // Of a record at most: both headers, a padding field of 64 bits more than that of 4 bytes, and the descriptor.
  const bytes = new Uint8Array(2 * nameBytes + contentBytes + names.length * (30 + 68 + 16 + 46) + 98);
  const view = new DataView(bytes.buffer);
  const headerOffsets = new Float64Array(names.length);
  let at = 0;
  encoded.forEach((name, k) => {
    const content = contents[k] as Uint8Array;
    headerOffsets[k] = at;
    const padding = (64 - ((at + 30 + name.length + 4) % 64)) % 64;
    view.setUint32(at, 0x04034b50, true);
    view.setUint16(at + 6, 0x0808, true);
    view.setUint16(at + 26, name.length, true);
    view.setUint16(at + 28, 4 + padding, true);
    bytes.set(name, at + 30);
    at += 30 + name.length;
    view.setUint16(at, 0x4246, true);
    view.setUint16(at + 2, padding, true);
    at += 4 + padding;
    bytes.set(content, at);
    at += content.length;
    if (content.length === 0) return;
    view.setUint32(at, 0x08074b50, true);
    view.setUint32(at + 8, content.length, true);
    view.setUint32(at + 12, content.length, true);
    at += 16;
  });
  const start = at;
  encoded.forEach((name, k) => {
    view.setUint32(at, 0x02014b50, true);
    view.setUint16(at + 8, 0x0808, true);
    view.setUint32(at + 20, (contents[k] as Uint8Array).length, true);
    view.setUint32(at + 24, (contents[k] as Uint8Array).length, true);
    view.setUint16(at + 28, name.length, true);
    view.setUint32(at + 42, headerOffsets[k] as number, true);
    bytes.set(name, at + 46);
    at += 46 + name.length;
  });
  const end = at;
  const count = BigInt(names.length);
  view.setUint32(at, 0x06064b50, true);
  view.setBigUint64(at + 4, 44n, true);
  view.setBigUint64(at + 24, count, true);
  view.setBigUint64(at + 32, count, true);
  view.setBigUint64(at + 40, BigInt(end - start), true);
  view.setBigUint64(at + 48, BigInt(start), true);
  view.setUint32(at + 56, 0x07064b50, true);
  view.setBigUint64(at + 64, BigInt(end), true);
  view.setUint32(at + 72, 1, true);
  view.setUint32(at + 76, 0x06054b50, true);
  view.setUint16(at + 84, Math.min(names.length, 0xffff), true);
  view.setUint16(at + 86, Math.min(names.length, 0xffff), true);
  view.setUint32(at + 88, end - start, true);
  view.setUint32(at + 92, start, true);
  return bytes.slice(0, at + 98);
}
