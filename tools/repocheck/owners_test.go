package repocheck

// knows lists the places that may lose the content of a file, by source file and "function:
// expression", with the reason why the file is cage's or was named by the user, or why it is not
// kept.
var knows = map[string]map[string]string{
	"cmd/cage/bench.go": {
		"newBenchStep: os.Create": "the user names the file",
	},
	"host/data/dataset/folder.go": {
		"Close: f.path.Join(LockFile).Remove": "this process made the directory",
		"Close: f.path.RemoveDir":             "this process made the directory, and it is empty",
		"Commit: atomicfile.WriteJSON":        "checkOurs: there is no manifest, or one of a dataset",
		"Prepare: atomicfile.RemoveAbandoned": "temporary files of a dataset, whose lock this " +
			"process holds",
		"writeCompanions: atomicfile.WriteBytes": "checkOurs: the very bytes, or the tokenizer of the " +
			"dataset that is replaced",
		"writeCompanions: path.Remove": "checkOurs: files beside the tokenizer of the " +
			"dataset that is replaced",
	},
	"host/data/dataset/writer.go": {
		"Commit: w.file.CommitAs":      "checkOurs of folder.go: token files begin with their mark",
		"NewWriter: atomicfile.Create": "checkOurs of folder.go: token files begin with their mark",
	},
	"host/data/document.go": {
		"get: atomicfile.Temporary": "it creates a file that was not there",
		"get: path.Remove":          "this process created it on the line before",
	},
	"host/data/learn.go": {
		"LearnTokenizer: atomicfile.RemoveAbandoned": "temporary files of a tokenizer, in a directory " +
			"that this process has locked",
		"LearnTokenizer: atomicfile.WriteBytes": "CheckOurs: the very bytes",
	},
	"host/data/source/parquet.go": {
		"read: parquet.OpenFile": "it reads",
	},
	"host/deploy/export/export.go": {
		"Write: atomicfile.WriteDir":   "what is in the way is refused there",
		"Write: atomicfile.WriteBytes": "in a directory of atomicfile.WriteDir",
		"Write: atomicfile.WriteJSON":  "in a directory of atomicfile.WriteDir",
	},
	"host/deploy/export/peft.go": {
		"planPEFT: atomicfile.WriteJSON": "in a directory of atomicfile.WriteDir",
	},
	"host/deploy/export/hub.go": {
		"write: atomicfile.WriteBytes": "in a directory of atomicfile.WriteDir",
	},
	"cmd/cage/export.go": {
		"newExport: os.MkdirTemp":    "export --check: nothing in the directory is kept",
		"lossOfExport: os.MkdirTemp": "export --check: nothing in the directory is kept",
		"newExport: os.RemoveAll":    "a directory with a random name, which this process made",
		"lossOfExport: os.RemoveAll": "a directory with a random name, which this process made",
	},
	"host/deploy/quantize/write.go": {
		"write: parts.RemoveAll": "this process made it, in a directory of atomicfile.WriteDir",
	},
	"host/deploy/quantize/pytorch.go": {
		"importTo: atomicfile.WriteDir": "the run does not exist before (CheckDir in Import)"},
	"host/deploy/quantize/quantize.go": {
		"quantize: atomicfile.WriteDir": "what is in the way is refused there",
	},
	"cmd/cage/pluginsapply.go": {
		"writeTensors: atomicfile.WriteBytes": "the user names the directory of the results",
	},
	"cmd/cage/score.go": {
		"newScore: atomicfile.Write": "the user names the file (Target)",
	},
	"host/deploy/tasks/ask.go": {
		"open: atomicfile.RemoveAbandoned": "temporary files of a directory that this process has locked",
		"open: atomicfile.WriteBytes":      "there is no such file",
		"open: jsonlines.Continue":         "its first line is that of these questions",
	},
	"host/deploy/tasks/results.go": {
		"WriteResults: atomicfile.WriteJSON":  "CheckOurs: results are read strictly first",
		"WriteSamples: atomicfile.WriteBytes": "CheckOurs: samples of a task with answers",
	},
	"host/deploy/trained/import.go": {
		"Import: atomicfile.WriteDir":  "what is in the way is refused there",
		"Write: atomicfile.WriteBytes": "in a directory of atomicfile.WriteDir",
		"Write: atomicfile.WriteJSON":  "in a directory of atomicfile.WriteDir",
	},
	"host/model/gguf/write.go": {
		"WriteFile: atomicfile.Write": "in a directory of atomicfile.WriteDir: exports call it",
	},
	"host/model/safetensors/header.go": {
		"encode: buf.Truncate": "memory",
	},
	"host/model/safetensors/write.go": {
		"WriteFile: atomicfile.Create": "exports call it in a directory of atomicfile.WriteDir, " +
			"checkpoints with the name of a step that no file has which could be read as one",
		"WriteShards: atomicfile.WriteBytes": "in a directory of atomicfile.WriteDir",
	},
	"host/study/attempt.go": {
		"process: r.study.dir(c).Join(logName).OpenFile": "checkOurs: the directory has the cell's " +
			"configuration, which comes first",
		"prepare: atomicfile.WriteBytes": "checkOurs: it begins as configurations do",
		"prepare: dir.Join(failedFile).Remove": "it was read strictly; what is something " +
			"else is put aside",
		"prepare: dir.Join(checksumsFile).Remove": "it was read strictly; what is something " +
			"else is put aside",
		"removeAbandoned: atomicfile.RemoveAbandoned": "temporary files of a cell or study that " +
			"this process has claimed",
		"process: outputFile.OpenFile": "the directory has the account of the " +
			"evaluation, which comes first",
	},
	"host/study/checksums.go": {
		"writeChecksums: atomicfile.WriteJSON": "there is none",
	},
	"host/study/evaluate.go": {
		"beginEvaluation: atomicfile.WriteJSON": "there is none: what is something else is put aside",
		"evaluate: atomicfile.WriteJSON":        "it was read strictly",
	},
	"host/study/figure/figure.go": {
		"Save: atomicfile.WriteBytes": "the user names the file (Target)",
	},
	"host/study/lock.go": {
		"write: file.OpenFile": "CheckOurs: the signature of a holder, or nothing",
	},
	"host/study/snapshot/snapshot.go": {
		"Write: atomicfile.WriteBytes": "the user names the file (Target), and results of another " +
			"study are refused",
	},
	"host/study/report/save.go": {
		"Save: atomicfile.WriteBytes": "CheckOurs: a file that the report in the directory names",
		"Save: at(name).Remove":       "a file that the report in the directory names",
	},
	"host/study/results.go": {
		"moveToStale: dir.Rename": "nothing is lost, and the name is one that no file has",
		"putAside: d.path.Rename": "nothing is lost, and the name is one that no file has",
	},
	"host/study/run.go": {
		"rounds: atomicfile.WriteBytes": "checkOurs: a study file",
	},
	"host/study/runner.go": {
		"cell: atomicfile.WriteJSON": "prepare has removed or put aside what was there",
	},
	"host/study/scaling/output.go": {
		"Save: atomicfile.WriteBytes": "CheckOurs: beside the fit.json of a fit",
	},
	"host/train/checkpoint/keeper.go": {
		"Prune: path.Remove": "temporary files, and files that open as checkpoints or parts of " +
			"that step",
		"RemoveAll: e.Path.Remove": "files that open as checkpoints",
		"RemoveAll: p.Remove":      "parts that open, of checkpoints of that step",
		"putAside: d.path.Rename":  "nothing is lost, and the name is one that no file has",
		"putAside: p.Path.Rename":  "nothing is lost, and the name is one that no file has",
	},
	"host/train/directory.go": {
		"describe: atomicfile.WriteBytes":      "previous: there is none, or it was read as this run's",
		"keepTokenizer: atomicfile.WriteBytes": "nothingOfAnother: there is none, or that of the data",
	},
	"host/train/metrics/lines.go": {
		"Resume: jsonlines.Continue": "begin: there is none; or find: entries up to the checkpoint are " +
			"read first",
	},
	"host/train/metrics/metrics.go": {
		"WriteSummary: atomicfile.WriteJSON": "nothingOfAnother and reopen: there is none, or this run's",
	},
	"host/train/plugin/client.go": {
		"Close: os.RemoveAll": "a directory of sockets with a random name, which this process made",
	},
	"host/train/plugin/gomain.go": {
		"build: os.Chtimes":     "in the cache of built plugins: what is lost is built again",
		"compile: os.MkdirAll":  "in the cache of built plugins: what is lost is built again",
		"compile: os.MkdirTemp": "in the cache of built plugins: what is lost is built again",
		"compile: os.RemoveAll": "a directory with a random name, which this process made",
		"compile: os.Rename":    "in the cache, under the hash of what is built",
	},
	"host/train/plugin/opaque_linux.go": {
		"newSharedMemory: unix.Fallocate": "memory without a name",
	},
	"host/train/plugin/scaffold/module.go": {
		"save: atomicfile.WriteBytes":  "in a directory with a random name, which this process made",
		"write: atomicfile.WriteBytes": "in a directory with a random name, which this process made",
	},
	"host/train/plugin/scaffold/scaffold.go": {
		"place: os.Chmod":     "a directory with a random name, which this process made",
		"place: os.MkdirTemp": "a new module is made there and then moved into place",
		"place: os.RemoveAll": "a directory with a random name, which this process made",
		"place: os.Rename": "it fails where there is a file, or a directory that is not " +
			"empty",
		"render: atomicfile.WriteBytes": "in a directory with a random name, which this process made",
	},
	"host/train/plugin/start.go": {
		"start: os.RemoveAll": "a directory of sockets with a random name, which this process made",
	},
	"host/train/processes/client.go": {
		"readFile: path.OpenFile":                 "it reads",
		"removeToken: dir.Join(tokenFile).Remove": "it was read as this process's token",
		"writeToken: path.OpenFile":               "it creates a file that was not there",
		"writeToken: path.Remove": "it begins with the mark of a token, or this " +
			"process created it",
	},
	"host/train/provenance/provenance.go": {
		"Write: atomicfile.WriteJSON": "nothingOfAnother: there is none, or this run's",
	},
	"host/train/report.go": {
		"reopen: path.Remove": "it was read as a summary; what is something else is put aside",
		"reopen: path.Rename": "nothing is lost, and the name is one that no file has",
	},
	"host/train/rundir/rundir.go": {
		"WriteFiles: atomicfile.WriteBytes": "CheckOurs: the very bytes",
		"RemoveAbandoned: atomicfile.RemoveAbandoned": "temporary files of a run whose lock this " +
			"process holds",
	},
	"host/train/metrics/events.go": {
		"CreateEvents: path.OpenFile": "it creates a file that was not there",
	},
	"internal/atomicfile/dir.go": {
		"WriteDir: dir.Rename":                "CheckDir: the name is one that no file has",
		"WriteDir: to.Join(Mark).Remove":      "this process made it",
		"WriteDir: mark.Remove":               "this process has locked it",
		"WriteDir: dir.RemoveDir":             "it is empty, and had the mark",
		"empty: dir.Join(e.Name()).RemoveAll": "replaceable: the directory has the mark",
		"unmark: mark.Remove": "marked: a regular file with the name of the mark, " +
			"whose lock nobody holds",
	},
	"internal/atomicfile/atomicfile.go": {
		"Abort: f.temp.Remove":         "this process created it",
		"Commit: f.CommitAs":           "its callers are listed as those of Create",
		"CommitAs: f.temp.Rename":      "its callers are listed as those of Create",
		"RemoveAbandoned: path.Remove": "a regular file whose name only this package gives",
		"Temporary: temp.OpenFile":     "it creates a file that was not there",
	},
	"internal/jsonlines/read.go": {
		"Append: l.file.Truncate": "what this Log wrote and could not finish",
		"Continue: f.Truncate":    "its callers are listed",
		"Continue: path.OpenFile": "its callers are listed",
	},
	"internal/vfs/os.go": {
		"Mkdir: os.Mkdir":          "it is the file system of the operating system",
		"openRegular: os.OpenFile": "its callers are listed",
		"Remove: os.Remove":        "its callers are listed",
		"Rename: os.Rename":        "its callers are listed",
	},
	"internal/vfs/path.go": {
		"Open: p.OpenFile":                          "it reads",
		"OpenFile: p.fs().OpenFile":                 "its callers are listed; it follows no link",
		"Remove: p.fs().Remove":                     "its callers are listed; it follows no link",
		"RemoveAll: p.Join(entry.Name()).RemoveAll": "its callers are listed; it follows no link",
		"RemoveAll: p.fs().Remove":                  "its callers are listed; it follows no link",
		"RemoveDir: p.fs().Remove":                  "its callers are listed; it follows no link",
		"Rename: p.fs().Rename":                     "its callers are listed; it follows no link",
	},
	"sdk/shared_unix.go": {
		"openShared: os.OpenFile": "memory that the host shares; it is opened as it is",
	},
}
