package huggingface

import (
	"encoding/json/v2"
	"os"
	"slices"
	"testing"
)

// TestPermutation: rows of heads change places as in the golden file.
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
			ComesFrom   []float32   `json:"interleaved_row_comes_from"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(text, &golden); err != nil || len(golden.Cases) == 0 {
		t.Fatalf("%d cases, error %v", len(golden.Cases), err)
	}
	for _, c := range golden.Cases {
		got, width := slices.Concat(c.Half...), len(c.Half[0])
		interleave(got, c.HeadSize, width)
		if want := slices.Concat(c.Interleaved...); !slices.Equal(got, want) {
			t.Errorf("interleaved rows %v, want %v", got, want)
		}
		numbers := make([]float32, len(c.ComesFrom))
		for i := range numbers {
			numbers[i] = float32(i)
		}
		if interleave(numbers, c.HeadSize, 1); !slices.Equal(numbers, c.ComesFrom) {
			t.Errorf("rows come from %v, want %v", numbers, c.ComesFrom)
		}
	}
}
