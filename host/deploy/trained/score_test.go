package trained_test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/score"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// TestScore checks that log-probabilities are those of lm-eval for the same checkpoint, and that
// skipped requests are left out.
func TestScore(t *testing.T) {
	var golden struct {
		Cases []struct {
			ContextIDs      []int32 `json:"context_ids"`
			ContinuationIDs []int32 `json:"continuation_ids"`
			Loglikelihood   float64
			IsGreedy        bool `json:"is_greedy"`
		}
	}
	testfile.ReadJSON(t, "../tasks/testdata/boundaries.json", &golden)
	if len(golden.Cases) < 10 {
		t.Fatalf("%d cases", len(golden.Cases))
	}
	m := openLlama(t, 32) // as in lm-eval's run; the last case is longer
	var requests []score.Request
	for _, c := range golden.Cases {
		requests = append(requests, score.Request{Context: c.ContextIDs, Continuation: c.ContinuationIDs})
	}
	seen := 0
	err := m.Score(t.Context(), requests, nil, func(which []int, scores []score.Score) error {
		for k, i := range which {
			seen++
			if want := golden.Cases[i]; math.Abs(scores[k].LogProb-want.Loglikelihood) > 2e-4 ||
				scores[k].Greedy != want.IsGreedy {
				t.Errorf("case %d: %+v, want %v and %v", i, scores[k], want.Loglikelihood, want.IsGreedy)
			}
		}
		return nil
	})
	if err != nil || seen != len(requests) {
		t.Errorf("%d of %d requests were scored, %v", seen, len(requests), err)
	}
	never := func([]int, []score.Score) error {
		t.Error("a batch was scored that was to be skipped")
		return nil
	}
	if err := m.Score(t.Context(), requests, func(int) bool { return true }, never); err != nil {
		t.Error(err)
	}
	bad := []score.Request{{Context: []int32{1}, Continuation: []int32{1 << 20}}}
	if err := m.Score(t.Context(), bad, nil, never); err == nil ||
		!strings.Contains(err.Error(), "the model has") {
		t.Errorf("a token that there is not: %v", err)
	}
}

// TestLogProbs compares the log-probability of each token with that of transformers, and checks
// that sequences that cannot be scored are refused.
func TestLogProbs(t *testing.T) {
	for _, name := range []string{"gemma", "gemma2", "gemma3", "granite", "llama32", "olmo2", "nemo",
		"qwen2", "qwen3", "smollm3"} {
		dir := "../../model/huggingface/testdata/" + name
		var golden struct {
			Tolerance   struct{ Abs, Rel float64 }
			InputIDs    [][]int32   `json:"input_ids"`
			TokenLosses [][]float64 `json:"token_losses"`
		}
		testfile.ReadJSON(t, dir+"/golden.json", &golden)
		if len(golden.InputIDs) == 0 {
			t.Fatalf("%s: %d sequences", name, len(golden.InputIDs))
		}
		ids, losses := golden.InputIDs, golden.TokenLosses
		ids, losses = append(ids, ids[0][:5], ids[0][:2]), append(losses, losses[0][:4], losses[0][:1])
		context := len(ids[0]) - 1 // the last token is predicted, and not read
		m := open(t, dir, trained.Options{NoData: true, Score: true, Context: context})
		got, err := m.LogProbs(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range losses {
			if len(got[i]) != len(want) {
				t.Fatalf("%s: %d numbers for %d tokens", name, len(got[i]), len(ids[i]))
			}
			for k, loss := range want {
				if off := math.Abs(float64(got[i][k]) +
					loss); off > golden.Tolerance.Abs+golden.Tolerance.Rel*loss {
					t.Errorf("%s: token %d of sequence %d has %v, want %v", name, k+1, i, got[i][k], -loss)
				}
			}
		}
		for want, bad := range map[string][]int32{
			"sequence 1 has the token 4096, but the model has": {1, 4096},
			"sequence 1 has 1 tokens: want 2 to":               {1},
			"sequence 1 has 0 tokens: want 2 to":               {},
			fmt.Sprintf("sequence 1 has %d tokens", context+2): slices.Repeat([]int32{1}, context+2),
		} {
			if _, err := m.LogProbs(t.Context(), [][]int32{{1, 2}, bad}); err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error is %v, want %q", name, err, want)
			}
		}
	}
}

// TestScoreWithFusedKernels checks that with attention in blocks, too, continuations of one context
// have the scores of whole sequences.
func TestScoreWithFusedKernels(t *testing.T) {
	cfg := testrun.Config(t, `device.kernels="fused"`)
	testrun.Train(t, cfg, train.Options{})
	m := open(t, cfg.Train.Out, trained.Options{Finder: testrun.Finder(t), NoData: true, Score: true})
	context := []int32{3, 1, 4, 1, 5}
	var requests []score.Request
	for _, continuation := range [][]int32{{9, 2}, {6}, {5, 3, 5}} {
		requests = append(requests, score.Request{Context: context, Continuation: continuation})
	}
	err := m.Score(t.Context(), requests, nil, func(which []int, scores []score.Score) error {
		for k, i := range which {
			of, err := m.LogProbs(t.Context(), [][]int32{slices.Concat(context, requests[i].Continuation)})
			if err != nil {
				return err
			}
			want := 0.0
			for _, p := range of[0][len(context)-1:] {
				want += float64(p)
			}
			if !(math.Abs(scores[k].LogProb-want) < 1e-4) {
				t.Errorf("request %d has %v, want %v", i, scores[k].LogProb, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// openLlama opens the checkpoint of lm-eval's results, with the given context length.
func openLlama(t *testing.T, context int) *trained.Model {
	t.Helper()
	m := open(t, "../../model/huggingface/testdata/llama32",
		trained.Options{NoData: true, Score: true, Generate: 2, Context: context})
	return m
}

// TestGenerateUntil checks that a text ends after a stop string, and that the others continue.
func TestGenerateUntil(t *testing.T) {
	m := openLlama(t, 512)
	tok, err := m.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	prompts := [][]int32{{320, 50, 64, 72}, {320, 34, 78}}
	whole, err := m.GenerateUntil(t.Context(), tok, prompts, 24, nil)
	if err != nil || len(whole) != 2 || len(whole[0]) < 8 {
		t.Fatalf("%q, %v", whole, err)
	}
	end := whole[0][4:6]
	cut, err := m.GenerateUntil(t.Context(), tok, prompts, 24, []string{end})
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(whole[0], end)
	if !strings.HasPrefix(whole[0], cut[0]) || len(cut[0]) < at+len(end) ||
		len(cut[0]) > at+len(end)+8 {
		t.Errorf("%q until %q is %q", whole[0], end, cut[0])
	}
	if !strings.Contains(whole[1], end) && cut[1] != whole[1] {
		t.Errorf("the other text is %q, want %q", cut[1], whole[1])
	}
	if _, err := m.GenerateUntil(t.Context(), tok, prompts, 512, nil); err == nil ||
		!strings.Contains(err.Error(), "leaves none for a question") {
		t.Errorf("an answer as long as the context: %v", err)
	}
}

// TestEnds checks that a text ends with each token that generation_config.json names, and with the
// one that begins documents.
func TestEnds(t *testing.T) {
	m := openLlama(t, 32)
	tok, err := m.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	ends := m.Ends(tok)
	for _, id := range []int32{321, 324, tok.Info().BOS} {
		if !slices.Contains(ends, id) {
			t.Errorf("texts end with %v, and not with %d", ends, id)
		}
	}
}

// TestEvaluateOnConversations checks that the same weights have the same loss over learned tokens
// on the same conversations: in training, and with the file named for that run, for a run of texts,
// or for a Hugging Face checkpoint.
func TestEvaluateOnConversations(t *testing.T) {
	testlevel.Long(t, "trains and compiles four models")
	cfg, hub := testrun.FromHub(t, "model.context=16", "train.final_eval_batches=0")
	chat := testrun.HubConversations(t, hub, 1, 9)
	validation := testrun.HubConversations(t, hub, 2, 21)
	talks := testrun.Elsewhere(t, cfg, `data.kind="chat"`, fmt.Sprintf("data.train=%q", chat),
		fmt.Sprintf("data.validation=%q", validation))
	summary := testrun.Train(t, talks, train.Options{})
	want := float64(*summary.ValLoss)
	imported := filepath.Join(t.TempDir(), "imported")
	c, err := trained.Import(t.Context(), hub, imported, 16)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()

	own, learned := testrun.Loss(t, talks.Train.Out, trained.Options{})
	named, targets := testrun.Loss(t, talks.Train.Out, trained.Options{Data: validation})
	if own != want || named != want || learned != targets {
		t.Errorf("the run's own loss is %v (%d targets), with the file named %v (%d), in training it "+
			"was %v", own, learned, named, targets, want)
	}
	for name, dir := range map[string]string{"a run of texts": imported,
		"a checkpoint of the hub": hub} {
		o := trained.Options{Data: validation}
		if dir == hub {
			o.Context = 16
		}
		if loss, n := testrun.Loss(t, dir, o); relative(loss, want) > 1e-6 || n != learned {
			t.Errorf("%s: the loss is %v over %d targets, want %v over %d", name, loss, n, want, learned)
		}
	}
}

// TestEvaluateOnTexts checks that a run that was trained on conversations is evaluated on a token
// file like a run of texts.
func TestEvaluateOnTexts(t *testing.T) {
	_, texts := testrun.Dataset(t)
	cfg := testrun.ChatConfig(t, `quantizer.plugin="none"`, "method.form=\"off\"",
		`data.packing="none"`)
	testrun.Train(t, cfg, train.Options{})
	same := testrun.Config(t,
		append([]string{fmt.Sprintf("model.init=%q", cfg.Train.Out), "train.final_eval_batches=0",
			"model.context=16", testrun.TwoLayers, "model.width=32", "model.heads=2", "model.hidden=48"},
			testrun.Still...)...)
	want := float64(*testrun.Train(t, same, train.Options{}).ValLoss)
	if loss, _ := testrun.Loss(t, cfg.Train.Out, trained.Options{Data: texts}); relative(loss,
		want) > 1e-6 {
		t.Errorf("the loss is %v, want %v", loss, want)
	}
}
