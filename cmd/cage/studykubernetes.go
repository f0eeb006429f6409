package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
	"unicode/utf8"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/lease"
)

// jobManifest is an indexed Job, whose index is that of a cell. What stands in it as json is YAML, too.
var jobManifest = template.Must(template.New("job").Funcs(template.FuncMap{"json": func(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}}).Parse(`apiVersion: batch/v1
kind: Job
metadata:
  name: {{json .Name}}
spec:
  completionMode: Indexed
  completions: {{.Cells}}
  parallelism: {{.Parallel}}
  backoffLimitPerIndex: 3
  podFailurePolicy:
    rules:
    - action: Ignore # stopped with a checkpoint, or waiting for a table: again
      onExitCodes: {containerName: cell, operator: In, values: [{{.Again}}]}
    - action: Ignore # the node is taken away: again
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
    - action: FailIndex # the cell has failed
      onExitCodes: {containerName: cell, operator: In, values: [{{.Failed}}, {{.Usage}}]}
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: {{.Grace}}
      containers:
      - name: cell
        image: {{json .Image}}
        workingDir: {{json .Directory}}
        command: [cage, study, cell, {{json .File}}, --index, "$(JOB_COMPLETION_INDEX)"{{if .Retry}}, --retry{{end}}]
        env: [{name: {{.Machine}}, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}] # which cage study status shows
{{- if .GPUs}}
        resources: {limits: {nvidia.com/gpu: {{.GPUs}}}}
{{- end}}
        volumeMounts: [{name: study, mountPath: {{json .Directory}}}]
      volumes: [{name: study, persistentVolumeClaim: {claimName: {{json .Volume}}}}]
`))

var notInJobNames = regexp.MustCompile(`[^a-z0-9]+`)

// longestJobName leaves room for what Kubernetes appends for each pod.
const longestJobName = 50

// kubernetesText is the manifest of a Job with a pod for each cell of a study. Pods of cells that are done end at once.
func kubernetesText(s *study.Study, image, volume string, retry bool) (string, error) {
	directory, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if !utf8.ValidString(directory + s.File) {
		return "", fmt.Errorf("%q: a manifest names files in UTF-8", filepath.Join(directory, s.File))
	}
	name := notInJobNames.ReplaceAllString(strings.ToLower(s.Name), "-")
	name = strings.Trim(name[:min(len(name), longestJobName)], "-")
	var text strings.Builder
	err = jobManifest.Execute(&text, map[string]any{
		"Name": cmp.Or(name, "study"), "Cells": len(s.Cells), "Parallel": cmp.Or(s.Parallel, len(s.Cells)),
		"Again": exitInterrupted, "Failed": exitError, "Usage": exitUsage, "Grace": fmt.Sprintf("%.0f", math.Ceil(60*s.StopMinutes)+30),
		"Image": image, "Directory": directory, "File": strings.ReplaceAll(s.File, "$", "$$"), // which is not to stand for variables
		"GPUs": study.GPUs(s.Cells), "Volume": volume, "Retry": retry, "Machine": lease.MachineVariable,
	})
	return text.String(), err
}
