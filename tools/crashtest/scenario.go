package main

import (
	"fmt"
	"strings"
)

// Scenario is a sequence of cage commands that change files.
type Scenario struct {
	Name   string
	Files  map[string]string // files in the working directory at the beginning
	Before [][]string        // arguments of cage for commands that are not disturbed
	Run    []string          // arguments of cage for the command that is killed
	// Again is the command that continues after a kill. If only a child process was killed, which a
	// study counts as a failed cell, Failed is used instead, unless it is nil.
	Again, Failed []string
}

// scenarios lists the scenarios: each optimizer that has state, the trained quantizer, diagnostics
// and trajectories, resumed runs, studies and the preparation of data.
func scenarios() []Scenario {
	list := []Scenario{
		training("toy-sgd", toy, ""),
		training("quadratic-adamw", quadratic, `optimizer = {plugin = "adamw"}`),
		training("quadratic-diagnostics", quadratic,
			"diagnostics = {every = 1, coordinates = 4, window = 2}"),
		resumed(training("resume-quadratic", quadratic,
			`optimizer = {plugin = "sgd", momentum = 0.9, nesterov = true}`), 5),
	}
	for _, o := range []struct{ name, settings string }{
		{"adamw", `optimizer = {plugin = "adamw"}`},
		{"sgd", `optimizer = {plugin = "sgd", momentum = 0.9}`},
		{"muon", `optimizer = {plugin = "muon", rest = "sgd"}`},
		{"shampoo", `optimizer = {plugin = "shampoo", freq = 2}`},
		{"shampoo-late", `optimizer = {plugin = "shampoo", freq = 3, refresh_delay = 1}`},
		{"soap", `optimizer = {plugin = "soap", freq = 2}`},
		{"soap-late", `optimizer = {plugin = "soap", freq = 3, refresh_delay = 2}`},
		{"lsq", `quantizer = {plugin = "lsq", bits = 4, variant = "lsq+"}`},
		{"lotion", "method = {name = \"lotion\"}\nquantizer.weights = {plugin = \"quest\", bits = 4}"},
	} {
		list = append(list, languageModel("llama-"+o.name, o.settings))
	}
	return append(list,
		resumed(languageModel("resume-soap-late",
			`optimizer = {plugin = "soap", freq = 3, refresh_delay = 2}`), 4),
		study("study", nil),
		study("study-again", []string{"study", "run", "study.toml", "--only", "seed=1"}),
		preparation("prepare", nil),
		preparation("prepare-over", []string{"data", "prepare", "text", "--out", "data", "--seed", "7"}),
	)
}

// training returns a scenario with checkpoints and evaluations every few steps.
func training(name, base, settings string) Scenario {
	return Scenario{
		Name:  name,
		Files: map[string]string{"run.toml": settings + base},
		Run:   []string{"train", "run.toml", "--quiet"},
		Again: []string{"train", "run.toml", "--quiet", "--resume"},
	}
}

func languageModel(name, settings string) Scenario {
	if !strings.Contains(settings, "quantizer") {
		settings += "\nquantizer = {plugin = \"quest\", bits = 4}"
	}
	s := training(name, llama, settings)
	s.withText()
	s.Before = [][]string{prepare}
	return s
}

// resumed returns a scenario that first stops a run after some steps. The command that resumes the
// run is then killed.
func resumed(s Scenario, steps int) Scenario {
	s.Before = append(s.Before,
		append(s.Run[:len(s.Run):len(s.Run)], "--stop-after", fmt.Sprint(steps)))
	s.Run = s.Again
	return s
}

// study returns a scenario with a study of four training runs, two at a time. If before is not nil,
// that command first performs some of them.
func study(name string, before []string) Scenario {
	s := Scenario{
		Name:  name,
		Files: map[string]string{"base.toml": quadratic, "study.toml": studyText},
		Run:   []string{"study", "run", "study.toml"},
	}
	s.Again, s.Failed = s.Run, append(s.Run[:len(s.Run):len(s.Run)], "--retry")
	if before != nil {
		s.Before = [][]string{before}
	}
	return s
}

// preparation returns a scenario that prepares a dataset. If before is not nil, that command first
// prepares another dataset in the same place.
func preparation(name string, before []string) Scenario {
	s := Scenario{Name: name, Run: prepare, Again: prepare}
	s.withText()
	if before != nil {
		s.Before = [][]string{before}
	}
	return s
}

var prepare = []string{"data", "prepare", "text", "--out", "data", "--validation", "0.3"}

// withText adds training documents to the scenario's files.
func (s *Scenario) withText() {
	if s.Files == nil {
		s.Files = map[string]string{}
	}
	for i := range 6 {
		text := ""
		for j := range 40 {
			text += fmt.Sprintf("%d and %d are %d\n", i, j, i+j)
		}
		s.Files[fmt.Sprintf("text/%d.txt", i)] = text
	}
}

const toy = `
model = {kind = "toy", start = 0.9}
train = {steps = 8, log_every = 1, trajectory_every = 1, eval_every = 3, checkpoint_every = 2}
schedule = {kind = "constant", rate = 0.1}
quantizer.weights = {plugin = "grid", step = 1.0, rounding = "floor"}
optimizer = {plugin = "sgd", momentum = 0.5}
method = {gradient = "full", lambda = 1.0, silence = 0.0, ramp = "constant", pareto_every = 4}
`

const quadratic = `
model = {kind = "quadratic", dimension = 8, condition = 10.0, noise = 0.01}
train = {steps = 8, log_every = 1, trajectory_every = 2, eval_every = 3, checkpoint_every = 3}
schedule = {rate = 1e-2}
quantizer.weights = {plugin = "quest", bits = 4}
method = {lambda = 2.0, silence = 0.2}
`

const llama = `
model = {layers = 1, width = 16, heads = 2, context = 8, hidden = 16}
data = {train = "data/train.tokens", validation = "data/val.tokens"}
train = {steps = 8, batch = 2, log_every = 1, eval_every = 3, eval_batches = 1, final_eval_batches = 1, checkpoint_every = 2, samples = "1 and", sample_tokens = 4}
schedule = {rate = 3e-3}
`

const studyText = `
base = "base.toml"

[study]
name = "kill"
out = "studies/kill"
parallel = 2

[[study.axes]]
name = "seed"
key = "seed"
values = [1, 2]

[[study.axes]]
name = "rate"
key = "schedule.rate"
values = [1e-2, 3e-2]
`
