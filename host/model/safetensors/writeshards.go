package safetensors

import (
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// ShardSize is the usual limit for the data in one file, in bytes.
const ShardSize = 5_000_000_000

// WriteShards writes the tensors, in order, into files with at most limit bytes of data each; 0 means [ShardSize]. A
// tensor that is larger gets a file of its own. A single file is called [SingleName]. Several files are numbered, and
// their index is written last; without the index, they are not a checkpoint. The metadata is in each file.
func WriteShards(ctx context.Context, dir vfs.Path, tensors []Tensor, metadata map[string]string, limit int64) error {
	shards, total, err := cut(tensors, limit)
	if err != nil {
		return err
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
	text, err := json.Marshal(map[string]any{"metadata": map[string]int64{"total_size": total}, "weight_map": weightMap},
		json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(dir.Join(IndexName), append(text, '\n'))
}

// cut divides tensors, in their order, into lists of limited size.
func cut(tensors []Tensor, limit int64) (shards [][]Tensor, total int64, err error) {
	if limit <= 0 {
		limit = ShardSize
	}
	filled := int64(0) // of the last list
	for _, t := range tensors {
		size, err := t.size()
		if err != nil {
			return nil, 0, err
		}
		if len(shards) == 0 || size > limit-filled {
			shards, filled = append(shards, nil), 0
		}
		shards[len(shards)-1] = append(shards[len(shards)-1], t)
		filled, total = filled+size, total+size
	}
	return shards, total, nil
}
