package assembly_test

import (
	"errors"
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/memory"
)

// TestCheckSizes: a model of very many tensors that no machine has memory for is refused without a word from plugins. What
// fits, or has few tensors, is left to CheckMemory.
func TestCheckSizes(t *testing.T) {
	for set, refused := range map[string]bool{
		"model={layers=4096, width=16384, heads=1, context=8}": true,
		"model={layers=1000, width=32, heads=1, context=8}":    false,
		"model={layers=100, width=65536, heads=1, context=8}":  false,
	} {
		cfg := testrun.Config(t, set, `train.memory_check="off"`)
		m, err := assembly.Model(cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = assembly.CheckSizes(assembly.Request{Config: cfg, Model: m})
		if _, tooLarge := errors.AsType[*memory.Error](err); tooLarge != refused || !refused && err != nil {
			t.Errorf("%s: %v", set, err)
		}
	}
}
