package assembly

import (
	"testing"

	"github.com/cage-qat/cage/host/train/config"
)

const taughtText = `
model = {layers = 1, width = 32, heads = 2, hidden = 48, context = 16, vocab = 328}
data = {train = "a", validation = "b"}
train = {steps = 1, batch = 1, distillation = {teacher = "../../model/huggingface/testdata/llama32"}}
schedule = {rate = 1e-3}
`

// TestTeacherInMemory: the parameters of a teacher are counted in a training, and not in an evaluation, which has none.
func TestTeacherInMemory(t *testing.T) {
	cfg, err := config.Parse("run.toml", []byte(taughtText), nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Model(cfg)
	if err != nil {
		t.Fatal(err)
	}
	found, err := config.ReadInitial(cfg.TeacherDir(), 16)
	if err != nil {
		t.Fatal(err)
	}
	s := found.Settings
	attention := (s.Heads + 2*s.KVHeads + s.Heads) * s.HeadSize * s.Width
	want := s.Vocab*s.Width + s.Layers*(attention+3*s.Width*s.Hidden+2*s.Width) + s.Width // with a tied head
	for forward, wanted := range map[bool]float64{false: float64(want), true: 0} {
		got, err := memoryModel(cfg, m, &Programs{Forward: forward})
		if err != nil || got.Teacher.Parameters != wanted {
			t.Errorf("forward %v: %v elements, want %v; error %v", forward, got.Teacher, wanted, err)
		}
	}
}
