package train_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/effort"
)

// flip changes one bit of the last token of a file, which stays in the vocabulary.
func flip(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-2] ^= 1
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// verifiedData are the hashes that the provenance of a run records.
func verifiedData(t *testing.T, dir string) []string {
	t.Helper()
	text, err := rundir.At(dir).Provenance().ReadFile()
	if err != nil {
		t.Fatal(err)
	}
	var p struct{ Data []struct{ SHA256 string } }
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, d := range p.Data {
		list = append(list, d.SHA256)
	}
	return list
}

// TestDamagedData: a run whose token files are not what their headers say ends with an
// error and leaves neither a checkpoint nor a result, wherever it is stopped; once the file
// is in order it can be resumed, and ends as if nothing had been.
func TestDamagedData(t *testing.T) {
	effort.Long(t, "trains several runs")
	whole := testrun.Config(t)
	testrun.Train(t, whole, train.Options{})
	recorded, err := config.Load(rundir.At(whole.Train.Out).Config().Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := verifiedData(t, whole.Train.Out); len(got) != 2 || got[0] != recorded.Data.TrainSHA256 || got[1] != recorded.Data.ValidationSHA256 {
		t.Errorf("the provenance records %q, the configuration %+v", got, recorded.Data)
	}
	for name, file := range map[string]func(*config.Config) string{
		"training":   func(c *config.Config) string { return c.Data.Train[0] },
		"validation": func(c *config.Config) string { return c.Data.Validation },
	} {
		for _, stop := range []int{0, 1} {
			t.Run(name, func(t *testing.T) {
				cfg := testrun.Config(t)
				flip(t, file(cfg))
				_, err := train.Run(context.Background(), cfg, train.Options{Finder: testrun.Finder(t), StopAfter: stop})
				if _, ok := errors.AsType[*dataset.FormatError](err); !ok {
					t.Fatalf("a damaged file: error %v", err)
				}
				leftNothing(t, cfg.Train.Out)
				flip(t, file(cfg))
				testrun.Train(t, cfg, train.Options{Resume: true})
				testrun.SameRun(t, "after the repair", whole.Train.Out, cfg.Train.Out)
			})
		}
	}
}

func leftNothing(t *testing.T, dir string) {
	t.Helper()
	if got := verifiedData(t, dir); len(got) > 0 {
		t.Errorf("the provenance records %q", got)
	}
	if list, err := filepath.Glob(filepath.Join(rundir.At(dir).Checkpoints().Name, "*.safetensors")); err != nil || len(list) > 0 {
		t.Errorf("checkpoints %q, %v", list, err)
	}
	text, err := rundir.At(dir).Summary().ReadFile()
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Completed bool     `json:"completed"`
		Error     string   `json:"error"`
		TrainLoss *float64 `json:"train_loss"`
		ValLoss   *float64 `json:"val_loss"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if s.Completed || s.Error == "" || s.TrainLoss != nil || s.ValLoss != nil {
		t.Errorf("the summary has results, or no error: %s", text)
	}
}
