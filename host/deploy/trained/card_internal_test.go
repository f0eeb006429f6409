package trained

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/provenance"
)

// TestTrainedOn: a model card names all files of the training data, and a hash with those that it is of.
func TestTrainedOn(t *testing.T) {
	one := []provenance.File{{Path: "d/train.tokens", SHA256: "a1"}, {Path: "d/val.tokens", SHA256: "b2"}}
	several := []provenance.File{{Path: "d/a.tokens", Files: []string{"d/a.tokens", "d/b.tokens"}, SHA256: "c3"}, {Path: "d/val.tokens", SHA256: "b2"}}
	older := []provenance.File{{Path: "d/a.tokens", SHA256: "c3"}}
	const tokens = ", 32 tokens in each step"
	for _, c := range []struct {
		data config.Data
		made []provenance.File
		want string
	}{
		{config.Data{Train: []string{"d/train.tokens"}}, one, "d/train.tokens" + tokens + "; train.tokens has the SHA-256 a1"},
		{config.Data{Train: []string{"d/train.tokens"}}, nil, "d/train.tokens" + tokens},
		{config.Data{Mixture: []config.Source{{Path: "d/a.tokens"}, {Path: "d/b.tokens"}}}, several, "d/a.tokens, d/b.tokens" + tokens + "; together they have the SHA-256 c3"},
		{config.Data{Train: []string{"d/*.tokens"}}, several, "d/*.tokens" + tokens + "; together they have the SHA-256 c3"},
		{config.Data{Train: []string{"d/*.tokens"}}, older, "d/*.tokens" + tokens},
	} {
		cfg := &config.Config{Data: c.data}
		cfg.Train.Batch, cfg.Train.Accumulate, cfg.Train.Steps, cfg.Model.Context = 2, 1, 1, 16
		if got := (&Model{made: &Record{Record: provenance.Record{Data: c.made}}}).trainedOn(cfg); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if got := strings.Join(appendNew(appendNew(appendNew(nil, "[a] x"), "[b] y"), "[a] x"), "; "); got != "[a] x; [b] y" {
		t.Errorf("%q", got)
	}
}
