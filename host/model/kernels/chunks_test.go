package kernels

import "testing"

// TestChunks checks how many tokens a loss computes at a time.
func TestChunks(t *testing.T) {
	for vocabulary, want := range map[int]int{256: 16384, 8192: 512, 49152: 512, 128256: 261,
		262144: 128} {
		if got := tokensFor(vocabulary); got != want {
			t.Errorf("%d tokens with a vocabulary of %d, want %d", got, vocabulary, want)
		}
	}
	for _, c := range [][3]int{{2048, 512, 512}, {2048, 261, 256}, {8336, 512, 2084}, // 16·521
		{1021, 512, 1021}, {10, 512, 10}} {
		if got := chunkOf(c[0], c[1]); got != c[2] {
			t.Errorf("chunks of %d of %d rows, want %d", got, c[0], c[2])
		}
	}
}
