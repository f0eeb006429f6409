package huggingface

import (
	"cmp"
	"maps"
	"strings"

	"github.com/cage-qat/cage/host/model/safetensors"
)

// multimodal is the architecture of Gemma 3 with images (4B to 27B), of which the text model is
// read.
const multimodal = "Gemma3ForConditionalGeneration"

// textModel returns the config.json of the text model, given that of a model of text and images.
// All others are returned unchanged.
func textModel(config []byte) ([]byte, error) {
	k, err := newKeys(config)
	if err != nil {
		return config, nil // parsing it explains why
	}
	var architectures []string
	k.read("architectures", &architectures, "a list of strings")
	if len(architectures) == 0 || architectures[0] != multimodal || !k.has("text_config") {
		return config, nil
	}
	text, err := newKeys(k.values["text_config"])
	if err != nil {
		return nil, &Error{Path: ConfigName, Faults: []string{"text_config: " + err.Error()}}
	}
	out := maps.Clone(gemma3Family.defaults) // published files leave them out
	out[beginKey], out[endKey], out["pad_token_id"] = 2, 1, 0
	if !text.has(parametersKey) {
		out[thetaKey], out["rope_local_base_freq"] = gemma3Family.theta, gemma3Family.localTheta
	}
	for key, value := range text.values {
		out[key] = value
	}
	for _, key := range []string{beginKey, endKey, "pad_token_id", "tie_word_embeddings",
		"torch_dtype", "dtype", quantizationKey, "transformers_version"} {
		if value, ok := k.values[key]; ok {
			out[key] = value
		}
	}
	out["architectures"], out["model_type"] = []string{gemma3Family.architecture},
		gemma3Family.modelType
	return encode(out)
}

// textTensors are the tensors of the text model in files of a model of text and images, by the
// names that they have in a text model.
type textTensors struct {
	files Tensors
	names map[string]string // in the files
}

// textName returns the name in a text model of a tensor with the given name in the files. It
// reports whether the tensor belongs to the text model.
func textName(inFiles string) (name string, ok bool) {
	for from, to := range map[string]string{"language_model.": "", "model.language_model.": "model.",
		"lm_head.": "lm_head."} {
		if rest, ok := strings.CutPrefix(inFiles, from); ok {
			return to + rest, true
		}
	}
	return "", false
}

// ofText leaves out the tensors for images. It returns t itself if there are none.
func ofText(t Tensors) (_ Tensors, leftOut int) {
	names := map[string]string{}
	for _, info := range t.Tensors() {
		if name, ok := textName(info.Name); ok {
			names[name] = info.Name
		}
		if strings.Contains(info.Name, "vision_tower.") ||
			strings.Contains(info.Name, "multi_modal_projector.") {
			leftOut++
		}
	}
	if leftOut == 0 {
		return t, 0
	}
	return textTensors{t, names}, leftOut
}

// Tensors implements [Tensors].
func (t textTensors) Tensors() (list []safetensors.Info) {
	for _, info := range t.files.Tensors() {
		if name, ok := textName(info.Name); ok && t.names[name] == info.Name {
			info.Name = name
			list = append(list, info)
		}
	}
	return list
}

// Tensor implements [Tensors].
func (t textTensors) Tensor(name string) (safetensors.Tensor, error) {
	return t.files.Tensor(cmp.Or(t.names[name], name))
}

// Close implements [Tensors].
func (t textTensors) Close() error { return t.files.Close() }
