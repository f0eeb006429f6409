package huggingface

import (
	"encoding/json/v2"
	"os"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
)

// TestPermutation checks that rows of heads are permuted as in the golden file.
func TestPermutation(t *testing.T) {
	text, err := os.ReadFile("testdata/permutation.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			HeadSize    int         `json:"head_size"`
			Half        [][]float32 `json:"half_split_weight"`
			Interleaved [][]float32 `json:"interleaved_weight"`
			ComesFrom   []int       `json:"interleaved_row_comes_from"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(text, &golden); err != nil || len(golden.Cases) == 0 {
		t.Fatalf("%d cases, error %v", len(golden.Cases), err)
	}
	for _, c := range golden.Cases {
		rows := make([]int, len(c.Half))
		for i := range rows {
			rows[i] = i
		}
		for i, row := range architecture.Reorder(rows, c.HeadSize, architecture.Interleaved,
			architecture.HalfSplit) {
			if !slices.Equal(c.Half[i], c.Interleaved[row]) || c.ComesFrom[row] != i {
				t.Errorf("row %d comes from %d, want %d", row, i, c.ComesFrom[row])
			}
		}
	}
}
