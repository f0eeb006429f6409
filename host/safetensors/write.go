package safetensors

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// WriteFile writes the tensors and the metadata to path, atomically: whatever
// happens, path holds either what it held before or the complete new file. When
// ctx is cancelled before the file is complete, nothing is changed.
func WriteFile(ctx context.Context, path vfs.Path, tensors []Tensor, metadata map[string]string) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		return Write(ctx, w, tensors, metadata)
	})
}

// Write writes the tensors and the metadata to w, without a copy of the data in
// memory. The bytes depend on the content only: tensors are ordered by element
// size, the largest first, so that each is aligned, and then by name. Metadata
// must not contain DigestKey, which Write adds.
func Write(ctx context.Context, w io.Writer, tensors []Tensor, metadata map[string]string) error {
	if _, ok := metadata[DigestKey]; ok {
		return fmt.Errorf("metadata: %s is for the writer to add", DigestKey)
	}
	tensors = slices.Clone(tensors)
	slices.SortStableFunc(tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(b.DType.Size(), a.DType.Size()), cmp.Compare(a.Name, b.Name))
	})
	h := header{metadata: maps.Clone(metadata)}
	if h.metadata == nil {
		h.metadata = map[string]string{}
	}
	h.metadata[DigestKey] = noDigest
	var end int64
	for _, t := range tensors {
		if err := t.check(); err != nil {
			return err
		}
		begin := end
		end += int64(len(t.Data))
		h.infos = append(h.infos, Info{Name: t.Name, DType: t.DType, Shape: t.Shape, Begin: begin, End: end})
	}
	head, err := h.encode()
	if err != nil {
		return err
	}
	if bytes.Count(head, []byte(noDigest)) != 1 {
		return errors.New("metadata or tensor names contain 64 zeros in a row")
	}
	// The digest stands before the data, so the data is passed over twice.
	sum := sha256.New()
	if err := copyAll(ctx, sum, head, tensors); err != nil {
		return err
	}
	head = bytes.Replace(head, []byte(noDigest), []byte(hex.EncodeToString(sum.Sum(nil))), 1)
	return copyAll(ctx, w, head, tensors)
}

// chunk is the number of bytes between two looks at the context.
const chunk = 8 << 20

// copyAll writes the header and the data of the tensors to w.
func copyAll(ctx context.Context, w io.Writer, head []byte, tensors []Tensor) error {
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, t := range tensors {
		for part := range slices.Chunk(t.Data, chunk) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
	}
	return nil
}
