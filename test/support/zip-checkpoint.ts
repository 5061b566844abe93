/**
 * A zip checkpoint in PyTorch's layout, written without Python: a list of one-dimensional uint8 tensors. For files that are too
 * large to be carried along.
 *
 * Layout: `_save` in torch/serialization.py and caffe2/serialize/inline_container.cc.
 *
 * @module
 */

const ALIGNMENT = 64;
const ROOT = "archive";

function text(value: string): Buffer {
  const bytes = Buffer.from(value);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(bytes.length);
  return Buffer.concat([Buffer.from("X"), length, bytes]);
}

function int(value: number): Buffer {
  const bytes = Buffer.alloc(5);
  bytes.write("J");
  bytes.writeInt32LE(value, 1);
  return bytes;
}

/** The pickle of the list, with the opcodes of protocol 2 and no memo. */
function pickleOf(sizes: readonly number[]): Buffer {
  const parts: Buffer[] = [Buffer.from([0x80, 2]), Buffer.from("](")];
  sizes.forEach((nbytes, index) => {
    parts.push(
      Buffer.from("ctorch._utils\n_rebuild_tensor_v2\n(("),
      text("storage"),
      Buffer.from("ctorch\nByteStorage\n"),
      text(String(index)),
      text("cpu"),
      int(nbytes),
      Buffer.from("tQ"),
      int(0),
      int(nbytes),
      Buffer.from([0x85]),
      int(1),
      Buffer.from([0x85, 0x89]),
      Buffer.from("ccollections\nOrderedDict\n)RtR"),
    );
  });
  parts.push(Buffer.from("e."));
  return Buffer.concat(parts);
}

/** The bytes of a checkpoint that holds each of `contents` as a uint8 tensor. */
export function writeZipCheckpoint(contents: readonly Uint8Array[]): Buffer {
  const records: [string, Uint8Array][] = [
    ["data.pkl", pickleOf(contents.map((content) => content.length))],
    ["byteorder", Buffer.from("little")],
    ...contents.map((content, index): [string, Uint8Array] => [`data/${index}`, content]),
    ["version", Buffer.from("3\n")],
  ];
  const parts: Uint8Array[] = [];
  const directory: Buffer[] = [];
  let at = 0;
  const add = (part: Uint8Array): void => {
    parts.push(part);
    at += part.length;
  };
  for (const [name, content] of records) {
    const full = Buffer.from(`${ROOT}/${name}`);
    const start = at;
    const local = Buffer.alloc(30);
    local.writeUInt32LE(0x04034b50, 0);
    local.writeUInt16LE(0x0808, 6);
    local.writeUInt16LE(full.length, 26);
    const padding = (ALIGNMENT - ((at + 30 + full.length + 4) % ALIGNMENT)) % ALIGNMENT;
    local.writeUInt16LE(4 + padding, 28);
    const extra = Buffer.alloc(4 + padding, "Z");
    extra.write("FB");
    extra.writeUInt16LE(padding, 2);
    for (const part of [local, full, extra, content]) add(part);
    if (content.length > 0) {
      const descriptor = Buffer.alloc(16);
      descriptor.writeUInt32LE(0x08074b50, 0);
      descriptor.writeUInt32LE(content.length, 8);
      descriptor.writeUInt32LE(content.length, 12);
      add(descriptor);
    }
    const central = Buffer.alloc(46);
    central.writeUInt32LE(0x02014b50, 0);
    central.writeUInt16LE(0x0808, 8);
    central.writeUInt32LE(content.length, 20);
    central.writeUInt32LE(content.length, 24);
    central.writeUInt16LE(full.length, 28);
    central.writeUInt32LE(start, 42);
    directory.push(central, full);
  }
  const start = at;
  for (const part of directory) add(part);
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  const count = Math.min(records.length, 0xffff);
  end.writeUInt16LE(count, 8);
  end.writeUInt16LE(count, 10);
  end.writeUInt32LE(at - start, 12);
  end.writeUInt32LE(start, 16);
  add(end);
  return Buffer.concat(parts);
}
