package main

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/cage-qat/cage/host/study"
)

// field is a field of an object of Kubernetes.
type field struct {
	is       string // string, integer, boolean, Quantity, the name of an object, []..., map[string]...
	required bool
	values   []string // that a text can have; nil: any
}

// kubernetesTypes reads the fields of objects from a file of testdata, in which an object is a line, and each of its fields an indented one.
func kubernetesTypes(t *testing.T) map[string]map[string]field {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "kubernetes", "job.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	types, object := map[string]map[string]field{}, ""
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		text, indented := strings.CutPrefix(lines.Text(), "\t")
		switch {
		case text == "" || strings.HasPrefix(text, "#"):
		case !indented:
			object = text
			types[object] = map[string]field{}
		default:
			words := strings.Fields(text)
			name, required := strings.CutSuffix(words[0], "!")
			x := field{is: words[1], required: required}
			if len(words) > 2 {
				x.values = strings.Split(strings.TrimPrefix(words[2], "="), "|")
			}
			types[object][name] = x
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return types
}

// misfits says where a value is not what a field is to be.
func misfits(types map[string]map[string]field, place string, value any, x field) (list []string) {
	report := func(format string, args ...any) {
		list = append(list, place+": "+fmt.Sprintf(format, args...))
	}
	if of, ok := strings.CutPrefix(x.is, "[]"); ok {
		items, ok := value.([]any)
		if !ok {
			report("%v is no list", value)
		}
		for i, item := range items {
			list = append(list, misfits(types, fmt.Sprintf("%s[%d]", place, i), item, field{is: of})...)
		}
		return list
	}
	object, isObject := value.(map[string]any)
	if of, ok := strings.CutPrefix(x.is, "map[string]"); ok {
		if !isObject {
			report("%v is no object", value)
		}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			list = append(list, misfits(types, place+"."+name, object[name], field{is: of})...)
		}
		return list
	}
	text, isText := value.(string)
	_, isInteger := value.(int)
	switch x.is {
	case "string":
		if !isText || x.values != nil && !slices.Contains(x.values, text) {
			report("%#v is no string of %q", value, x.values)
		}
		return list
	case "integer":
		if !isInteger {
			report("%#v is no integer", value)
		}
		return list
	case "Quantity":
		if !isInteger && !isText {
			report("%#v is no quantity", value)
		}
		return list
	}
	fields, known := types[x.is]
	if !known || !isObject {
		report("%v is no %s, or the excerpt lacks that", value, x.is)
		return list
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if of, ok := fields[name]; ok {
			list = append(list, misfits(types, place+"."+name, object[name], of)...)
		} else {
			report("%s has no field %q", x.is, name)
		}
	}
	for name, of := range fields {
		if _, there := object[name]; of.required && !there {
			report("%s wants %q", x.is, name)
		}
	}
	return list
}

// TestKubernetesManifest: the manifest has no field that Kubernetes does not know, none of another type, and all that it wants. What
// its API server looks at beyond types is checked as its documentation states it: rules about exit codes need restartPolicy Never, indices that
// fail need a limit for each index, codes are in ascending order and not 0.
func TestKubernetesManifest(t *testing.T) {
	types := kubernetesTypes(t)
	for _, kind := range []string{"cpu", "cuda"} {
		for _, retry := range []bool{false, true} {
			s, err := study.Parse("many.toml", []byte(`
[base]
model = {kind = "toy"}
train = {steps = 50}
schedule = {kind = "constant", rate = 0.1}
optimizer = {plugin = "sgd"}
device = {kind = "`+kind+`"}
[study]
name = "Many: cells, and 'more'"
[[study.axes]]
name = "seed"
key = "seed"
values = [0, 1, 2]
`))
			if err != nil {
				t.Fatal(err)
			}
			text, err := kubernetesText(s, "registry.example/cage:1", "claim", retry)
			if err != nil {
				t.Fatal(err)
			}
			var job map[string]any
			if err := yaml.Unmarshal([]byte(text), &job); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if list := misfits(types, "job", job, field{is: "Job"}); len(list) > 0 {
				t.Errorf("%s\n%s", strings.Join(list, "\n"), text)
			}
			spec := job["spec"].(map[string]any)
			pod := spec["template"].(map[string]any)["spec"].(map[string]any)
			if pod["restartPolicy"] != "Never" || spec["completionMode"] != "Indexed" || spec["backoffLimitPerIndex"] == nil || spec["completions"] != 3 {
				t.Errorf("%v", spec)
			}
			for _, rule := range spec["podFailurePolicy"].(map[string]any)["rules"].([]any) {
				codes, ok := rule.(map[string]any)["onExitCodes"].(map[string]any)
				if !ok {
					continue
				}
				last := 0
				for _, code := range codes["values"].([]any) {
					if code.(int) <= last {
						t.Errorf("exit codes %v", codes["values"])
					}
					last = code.(int)
				}
			}
		}
	}
}

// TestMisfits: the check above finds what it is there for.
func TestMisfits(t *testing.T) {
	types := kubernetesTypes(t)
	for text, want := range map[string]string{
		"spec: {completionMode: Indexd, template: {}}":                       "completionMode",
		"spec: {completions: many, template: {}}":                            "is no integer",
		"spec: {parallel: 3, template: {}}":                                  `JobSpec has no field "parallel"`,
		"spec: {}":                                                           `JobSpec wants "template"`,
		"spec: {template: {spec: {containers: {}}}}":                         "is no list",
		"spec: {template: {spec: {containers: [{name: a, lifecycle: {}}]}}}": "the excerpt lacks that",
		"metadata: 3": "is no ObjectMeta",
	} {
		var job map[string]any
		if err := yaml.Unmarshal([]byte(text), &job); err != nil {
			t.Fatal(err)
		}
		if list := misfits(types, "job", job, field{is: "Job"}); len(list) != 1 || !strings.Contains(list[0], want) {
			t.Errorf("%s: %q, want %q", text, list, want)
		}
	}
}
