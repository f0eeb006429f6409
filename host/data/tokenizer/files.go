package tokenizer

// Names of the files of a published tokenizer.
const (
	// DefinitionFile is the tokenizer itself.
	DefinitionFile = "tokenizer.json"
	// ConfigFile may name the tokens that begin and end a document, and hold a chat template.
	ConfigFile = "tokenizer_config.json"
	// SpecialsFile names the special tokens once more, for older programs.
	SpecialsFile = "special_tokens_map.json"
	// TemplateFile is the chat template.
	TemplateFile = "chat_template.jinja"
	// GenerationFile says at which tokens texts begin and end.
	GenerationFile = "generation_config.json"
)

// Files lists them, the definition first.
var Files = []string{DefinitionFile, ConfigFile, SpecialsFile, TemplateFile, GenerationFile}

// Beside lists those that may stand beside the definition. They say how text is put to the
// model, and go where the tokenizer goes.
var Beside = Files[1:]
