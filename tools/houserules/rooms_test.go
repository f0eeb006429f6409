package houserules

import (
	"slices"
	"strings"
	"testing"
)

// A room is a package of host/ with the packages of this module that it may import.
type room struct {
	name   string // below host/
	may    string // rooms, and packages with their whole paths
	reason string // why it needs these, and no others
}

// rooms are all rooms, the highest first: a room imports only what stands below it. The tools of internal/ (files, processes,
// numbers), which know nothing of training, are open to all rooms.
var rooms = []room{
	{"study/serve", "study/serve/curve study/held study/report/page train/checkpoint train/rundir train/metrics", "shows what runs leave on disk; it trains nothing"},
	{"study/serve/curve", "", "points: what they are of is the caller's business"},
	{"study/report", "study study/report/page study/stat study/figure train/rundir train/metrics", "reports on what studies and runs left on disk; it trains nothing"},
	{"study/report/page", "", "lays out texts, numbers and pictures, whatever they are of"},
	{"study/kept", "study train/rundir train/config train/metrics compute/engine", "keeps the numbers of studies with what they were made of: it trains nothing and makes no tables"},
	{"study", "study/held study/evaluation study/stat deploy/tasks deploy/ruler deploy/posttrain/settings train/rundir train/config method train/console train/metrics", "trains and evaluates in processes of their own, and reads what these leave on disk; of tasks it knows what they are called and what they measure"},
	{"study/held", "", "locks of cells and who has them: what is done with the cells is the caller's business"},
	{"study/stat", "", "statistics of numbers"},
	{"study/evaluation", "deploy/tasks deploy/ruler train/metrics", "says how a model is asked and what came out; which models are asked is the caller's business"},
	{"study/bench", "train/assembly study/bench/direct study/bench/opprofile study/bench/peak compute/matmul train/step compute/update compute/lower train/plugin train/config method model compute/engine model/architecture compute/device", "measures steps from outside, with parts of its own choice"},
	{"study/bench/peak", "model/architecture compute/loops compute/engine compute/matmul", "times loops and products of others: of models it knows the shapes"},
	{"study/bench/direct", "compute/update compute/lower compute/engine method sdk/answer sdk/program", "two algorithms without plugins, put where those of plugins would be"},
	{"study/bench/opprofile", "compute/engine", "reads profiles of executables"},
	{"study/scaling", "train/rundir train/config method study/figure train/metrics", "fits numbers that runs left on disk; it trains nothing"},
	{"study/figure", "train/metrics", "draws points and the records of runs"},
	{"deploy", "", "says what its rooms are"},
	{"deploy/quantize", "train/checkpoint train/provenance model compute/device train/config train/rundir model/safetensors train/plugin model/huggingface train/metrics data/tokenizer train/assembly train/step deploy/trained compute/engine deploy/posttrain/layerwise data/dataset deploy/posttrain/settings", "from a model to one whose weights are quantized: it knows how both are kept, and nothing of rounding"},
	{"deploy/query", "deploy/trained data/chat model/score model/generate deploy/ruler data/tokenizer model/safetensors train/metrics deploy/tasks deploy/tasks/ask model/huggingface data/source", "what a model is asked and what ends its answer: how answers are judged is the business of others"},
	{"deploy/trained", "train/step model/score model/safetensors train/plugin train/assembly model/architecture model/huggingface compute/device model/generate compute/engine deploy/export train/rundir deploy/posttrain/layerwise method train/config train/provenance sdk/answer data/chat train/checkpoint train/metrics data/tokenizer data/dataset deploy/posttrain/settings", "opens what trainings leave and asks it: the one place where a run becomes a model that is used"},
	{"deploy/tasks/ask", "deploy/tasks model/score", "asks, keeps answers and sums up: which model answers is the caller's business"},
	{"deploy/tasks", "data data/chat data/chat/jinja model/score", "rows become questions of token ids, and answers numbers: it knows no model, but the templates of conversations"},
	{"deploy/ruler", "", "makes prompts and scores answers: how many tokens a text has, and what a model answers, come from outside"},
	{"deploy/export", "deploy/export/pack deploy/export/readback model/huggingface model/gguf model/safetensors data/tokenizer model/architecture sdk/answer", "from weights to formats of other programs: where the weights come from is the caller's business"},
	{"deploy/export/pack", "", "turns codes into bytes"},
	{"deploy/export/readback", "model/gguf model/safetensors", "turns bytes into numbers, and shares nothing with what wrote them"},
	{"deploy/posttrain/layerwise", "deploy/posttrain deploy/posttrain/settings compute/lower model compute/engine sdk/answer sdk/program compute/pass/rotation model/architecture method/levels", "runs blocks of a model, and programs of quantizers, on a device: where weights come from and go to is the caller's business"},
	{"deploy/posttrain/settings", "", "keys and their ranges, for commands and studies alike, which link no engine"},
	{"deploy/posttrain", "method/levels", "rounds matrices: it knows grids and inputs, and no quantizer, model or device"},
	{"train", "model/generate train/tensorboard train/assembly train/step compute/refresh train/memory train/plugin train/checkpoint model/safetensors train/rundir train/config method model method/diagnostics method/schedule compute/engine compute/device data/tokenizer train/console train/metrics model/architecture data/chat train/provenance model/huggingface",
		"the loop holds all ends together, and so knows most rooms; no room knows it"},
	{"train/records", "train/tensorboard train/metrics train/rundir", "reads what runs recorded and writes it for other programs"},
	{"train/conformance", "compute/lower train/plugin compute/engine sdk sdk/answer sdk/program sdk/program/reference sdk/sdktest", "the kit of the sdk, run on processes and devices; it holds no check"},
	{"train/inspect", "compute/triton sdk/answer sdk/program sdk/program/autodiff sdk/program/reference sdk/sdktest", "looks at programs and runs them on the oracle: where they come from, and how results are shown, is the caller's business"},
	{"train/conformance/values", "sdk sdk/answer sdk/sdktest", "which plugins the values of others are compared with, and how: the comparing is the kit's business"},
	{"train/provenance", "train/checkpoint model train/rundir train/assembly model/safetensors train/step data/tokenizer model/architecture compute/engine model/huggingface data/dataset sdk", "says what runs and weights come from, and reads such weights: whether to train with them or to use them is the caller's business"},
	{"train/assembly", "train/memory train/config compute/device model compute/update method method/diagnostics compute/engine train/rundir compute/lower data/tokenizer sdk sdk/answer train/plugin data/dataset model/architecture data/arrange method/schedule compute/refresh train/step sdk/program compute/pass/rotation data/chat model/huggingface",
		"the one place where a configuration becomes parts, so that no part has to read configurations"},
	{"train/step", "model/decode compute/threefry compute/refresh compute/update compute/lower compute/pass/rotation method model compute/engine compute/engine/autodiff sdk sdk/answer compute/device model/architecture model/generate", "runs what it is given: it reads no configuration and asks no plugin"},
	{"train/memory", "sdk/program compute/device model/architecture", "computes from sizes alone"},
	{"train/plugin/scaffold", "sdk", "writes source, and runs nothing of it"},
	{"train/plugin", "train/plugin/supervisor sdk sdk/answer sdk/client", "processes that answer with programs: what becomes of these is nothing to it"},
	{"train/plugin/supervisor", "", "keeps a process and its children together, whatever it runs"},
	{"train/processes", "train/processes/wire", "small values and votes between processes: what they are about is the caller's business"},
	{"train/processes/wire", "", "messages and what is generated from them"},
	{"train/checkpoint", "model/safetensors", "keeps named tensors; what they mean is known to who saves them"},
	{"train/rundir", "train/config data/tokenizer train/metrics", "names files, those of tokenizers too, and reads configurations and results to find runs"},
	{"train/config", "model/huggingface method method/diagnostics method/schedule sdk compute/device model/architecture", "each table is described by the package it is about: reading it needs all of these, and none of them needs it"},
	{"train/tensorboard", "train/metrics", "writes the records of runs for another program"},
	{"train/console", "train/metrics", "shows the records of runs"},
	{"train/metrics", "", "defines what is recorded of a run"},
	{"model/score", "", "sequences into batches: which model reads them is the caller's business"},
	{"model/generate", "data/tokenizer", "samples from numbers, and makes text of what it draws: which model gives the numbers is the caller's business"},
	{"model/decode", "model model/architecture compute/loops", "computes a model in the host's memory: no device, no quantizer and no run is known to it"},
	{"model/huggingface", "model/safetensors data/tokenizer model/architecture", "from the layout of the hub to a model's settings and parameters, and back; of the tokenizer it knows the names of files"},
	{"model/gguf", "", "a format of files"},
	{"model/safetensors", "", "a format of files"},
	{"model", "compute/lower compute/attention compute/onepass compute/engine compute/engine/autodiff sdk/program model/architecture compute/device", "networks as graphs, with programs of their own for what GPUs compute by kernels: how they are trained is the business of others"},
	{"model/architecture", "", "numbers and names: what computes with them stands above"},
	{"compute", "", "says what its rooms are"},
	{"compute/refresh", "compute/update compute/engine sdk/answer sdk/program sdk/program/transform sdk/program/reference", "renews state tensors with programs; of the oracle it takes tensors and the operations that are rarely run"},
	{"compute/update", "compute/cpu compute/lower method compute/engine sdk sdk/answer sdk/program compute/pass/vectorize", "runs programs and the method's rules on buffers; what they are for it does not know"},
	{"compute/onepass", "compute/loops", "slices of numbers, row by row: what they are of is the caller's business"},
	{"compute/attention", "compute/loops compute/matmul", "slices of numbers, as products: what is attended to is the caller's business"},
	{"compute/lower", "compute/engine compute/engine/autodiff compute/threefry compute/triton compute/cpu compute/tables compute/pass/byrow sdk/answer sdk/program sdk/program/transform sdk/program/autodiff compute/pass/factor compute/pass/rotation sdk/program/simplify compute/device", "from programs to graphs, whatever the programs are for"},
	{"compute/triton", "compute/pass/byrow sdk/program sdk/program/transform", "writes text: no graph and no device is known to it"},
	{"compute/cpu", "compute/loops compute/pass/byrow sdk/program sdk/program/simplify", "runs programs on slices of numbers, without any device"},
	{"compute/tables", "", "computes on slices of numbers: programs are unknown to it"},
	{"compute/loops", "", "computes on slices of numbers: programs are unknown to it"},
	{"compute/threefry", "", "random words from keys: what they are for is the caller's business"},
	{"compute/pass/byrow", "sdk/program sdk/program/transform", "reads programs: how rows are computed is the caller's business"},
	{"compute/pass/factor", "sdk/microscaling sdk/program sdk/program/transform", "a program becomes a program: what for, and on which device it runs, is the caller's business"},
	{"compute/pass/rotation", "sdk/program sdk/program/simplify", "a program becomes a program: what for, and on which device it runs, is the caller's business"},
	{"compute/pass/vectorize", "sdk/program sdk/program/transform", "a program becomes a program: what for, and on which device it runs, is the caller's business"},
	{"compute/engine/autodiff", "compute/engine", "rules of differentiation that the library lacks"},
	{"compute/engine", "compute/device compute/matmul", "devices and executables: it knows nothing of what they compute"},
	{"compute/device", "", "names without code"},
	{"compute/matmul", "", "multiplies slices of numbers: graphs, devices and what the numbers mean are nothing to it"},
	{"method", "method/levels sdk/answer sdk/program sdk/program/reference sdk/program/transform", "the methods go with every quantizer, optimizer and device"},
	{"method/levels", "", "reads numbers off codes, whoever gave them"},
	{"method/diagnostics", "", "measures codes and residuals, whoever has them"},
	{"method/schedule", "", "functions from steps to rates"},
	{"data/chat", "data/chat/jinja data/dataset data/tokenizer", "conversations become documents of token ids: what is trained on them it does not know"},
	{"data/chat/jinja", "", "a language: what its templates write is nothing to it"},
	{"data", "data/dataset data/source data/tokenizer", "token files leave as numbers"},
	{"data/arrange", "data/dataset", "batches of numbers from token files: what is trained on them it does not know"},
	{"data/dataset", "data/tokenizer", "stores token ids, whatever they were made of and however they are read"},
	{"data/source", "", "texts of files, whatever becomes of them"},
	{"data/tokenizer", "", "text and ids"},
}

// wings are the folders of host/, the highest first. A wing imports what stands below it, never what stands above it.
var wings = []string{"study", "deploy", "train", "model", "compute", "method", "data"}

// TestWings: the rooms of a wing stand together in the table, in the order of the wings, so that no room may import one of a
// wing above its own; beside rooms they may import the sdk alone.
func TestWings(t *testing.T) {
	at := 0
	for _, r := range rooms {
		wing, _, _ := strings.Cut(r.name, "/")
		for at < len(wings) && wings[at] != wing {
			at++
		}
		if at == len(wings) {
			t.Fatalf("host/%s stands behind rooms of lower wings, or is of none: the wings are %v, the highest first", r.name, wings)
		}
		for _, name := range strings.Fields(r.may) {
			first, _, _ := strings.Cut(name, "/")
			if !slices.Contains(wings, first) && first != "sdk" {
				t.Errorf("host/%s may import %s, which is neither a room nor of the sdk", r.name, name)
			}
		}
	}
}

// forTests are packages of host/ that nothing but tests may import, and whose own imports
// are free.
var forTests = []string{"./host/internal/badfiles", "./host/internal/pjrtrecord", "./host/internal/testbrowser", "./host/internal/testdevice", "./host/internal/testfile", "./host/internal/testhub", "./host/internal/testkernel", "./host/internal/testrows", "./host/internal/testrun", "./host/compute/update/executortest"}

const hostPath = module + "/host/"

// TestRooms: every package of host/ has a rule, and its imports are those of the rule, all
// of which stand below it.
func TestRooms(t *testing.T) {
	place := map[string]int{}
	for i, r := range rooms {
		place[r.name] = i
	}
	seen := map[string]bool{}
	for _, p := range load(t) {
		name, ok := strings.CutPrefix(p.PkgPath, hostPath)
		if !ok || matches(p.PkgPath, forTests) {
			continue
		}
		i, ok := place[name]
		if !ok {
			t.Errorf("host/%s has no rule: say in the table rooms what it may import, and why", name)
			continue
		}
		seen[name] = true
		var imported []string
		for path := range p.Imports {
			if below, ok := roomOrPackage(path); ok {
				imported = append(imported, below)
			}
		}
		rooms[i].check(t, place, imported)
	}
	for _, r := range rooms {
		if !seen[r.name] {
			t.Errorf("there is no host/%s, which has a rule", r.name)
		}
	}
}

// roomOrPackage is how the table names an import; false for what is open to all.
func roomOrPackage(path string) (string, bool) {
	if name, ok := strings.CutPrefix(path, hostPath); ok {
		return name, true
	}
	name, ok := strings.CutPrefix(path, module+"/")
	return name, ok && !strings.HasPrefix(name, "internal/")
}

func (r room) check(t *testing.T, place map[string]int, imported []string) {
	may := strings.Fields(r.may)
	for _, name := range imported {
		if !slices.Contains(may, name) {
			t.Errorf("host/%s imports %s, which its rule does not allow: %s", r.name, name, r.reason)
		}
	}
	for _, name := range may {
		if !slices.Contains(imported, name) {
			t.Errorf("host/%s may import %s and does not: the rule is not needed any more", r.name, name)
		}
		if at, isRoom := place[name]; isRoom && at <= place[r.name] {
			t.Errorf("host/%s may import host/%s, which stands above it", r.name, name)
		}
	}
}
