package safetensors

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/digest"
	"github.com/cage-qat/cage/internal/vfs"
)

// WriteFile writes the tensors and the metadata to path atomically: in case of an error, path keeps
// its previous content. If ctx is cancelled before the file is complete, nothing is changed.
func WriteFile(ctx context.Context, path vfs.Path, tensors []Tensor,
	metadata map[string]string) error {
	f, err := atomicfile.Create(path)
	if err == nil {
		if err = Write(ctx, f, tensors, metadata); err == nil {
			err = f.Commit()
		}
		err = errors.Join(err, f.Abort())
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Write writes the tensors and the metadata to w. It requests the data of one tensor at a time,
// once, and retains none of it. The bytes depend only on the content: tensors are ordered by
// element size, the largest first, so that each is aligned, and then by name. Metadata must not
// contain the digests, which Write adds.
func Write(ctx context.Context, w io.WriterAt, tensors []Tensor, metadata map[string]string) error {
	tensors = slices.Clone(tensors)
	slices.SortStableFunc(tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(b.DType.Bits(), a.DType.Bits()), cmp.Compare(a.Name, b.Name))
	})
	h := header{metadata: metadata, digests: digests{ofHeader: noDigest,
		ofTensors: map[string]string{}}}
	for key := range metadata {
		if isDigestKey(key) {
			return fmt.Errorf("metadata: %s is reserved for the writer", key)
		}
	}
	var end int64
	for _, t := range tensors {
		size, err := t.size()
		if err != nil {
			return err
		}
		h.infos = append(h.infos, Info{Name: t.Name, DType: t.DType, Shape: t.Shape, Begin: end,
			End: end + size})
		h.ofTensors[t.Name] = noDigest
		end += size
	}
	// With placeholders for the digests the header has its final length. It precedes the data but is
	// written after it, when the digests are known.
	head, err := h.encode()
	if err != nil {
		return err
	}
	begin := len(head)
	// The buffer is large, so that system calls take little of the time.
	data := bufio.NewWriterSize(io.NewOffsetWriter(w, int64(begin)), 1<<20)
	for _, t := range tensors {
		d := &digester{ctx: ctx, w: data, sum: digest.New()}
		if err := t.Write(d); err != nil {
			return err
		}
		if err := errors.Join(ctx.Err(), t.checkSize(d.n)); err != nil {
			return err
		}
		h.ofTensors[t.Name] = fmt.Sprintf("%x", d.sum.Sum(nil))
	}
	if err := data.Flush(); err != nil {
		return err
	}
	if head, err = h.encode(); err != nil {
		return err
	}
	h.ofHeader = hexDigest(head)
	if head, err = h.encode(); err != nil {
		return err
	}
	if len(head) != begin {
		return errors.New("the length of the metadata has changed")
	}
	_, err = w.WriteAt(head, 0)
	return err
}

// digester hashes and counts the bytes written through it, until its context ends.
type digester struct {
	ctx context.Context
	w   io.Writer
	sum hash.Hash
	n   int64
}

func (d *digester) Write(data []byte) (int, error) {
	if err := d.ctx.Err(); err != nil {
		return 0, err
	}
	d.sum.Write(data)
	d.n += int64(len(data))
	return d.w.Write(data)
}

// ShardSize is the usual limit for the data in one file, in bytes.
const ShardSize = 5_000_000_000

// WriteShards writes the tensors, in order, into files with at most limit bytes of data each; 0
// means [ShardSize]. A larger tensor is alone in its file. A single file is called [SingleName].
// Several files are numbered, and their index is written last; without the index, they are not a
// checkpoint. The metadata is in each file.
func WriteShards(ctx context.Context, dir vfs.Path, tensors []Tensor, metadata map[string]string,
	limit int64) error {
	if limit <= 0 {
		limit = ShardSize
	}
	var shards [][]Tensor
	var total, filled int64 // bytes of all, and of the last shard
	for _, t := range tensors {
		size, err := t.size()
		if err != nil {
			return err
		}
		if len(shards) == 0 || size > limit-filled {
			shards, filled = append(shards, nil), 0
		}
		shards[len(shards)-1] = append(shards[len(shards)-1], t)
		filled, total = filled+size, total+size
	}
	if len(shards) <= 1 {
		return WriteFile(ctx, dir.Join(SingleName), tensors, metadata)
	}
	weightMap := make(map[string]string, len(tensors))
	for i, shard := range shards {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		for _, t := range shard {
			if weightMap[t.Name] != "" {
				return fmt.Errorf("write %s: there are two tensors %q", dir.Join(name), t.Name)
			}
			weightMap[t.Name] = name
		}
		if err := WriteFile(ctx, dir.Join(name), shard, metadata); err != nil {
			return err
		}
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]int64{"total_size": total},
		"weight_map": weightMap},
		json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(dir.Join(IndexName), append(text, '\n'))
}
