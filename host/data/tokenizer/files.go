package tokenizer

// Names of the files of a published tokenizer.
const (
	// DefinitionFile defines the tokenizer.
	DefinitionFile = "tokenizer.json"
	// ConfigFile may name the tokens that begin and end a document, and hold a chat template.
	ConfigFile = "tokenizer_config.json"
	// SpecialsFile names the special tokens again, for older programs.
	SpecialsFile = "special_tokens_map.json"
	// TemplateFile is the chat template.
	TemplateFile = "chat_template.jinja"
	// GenerationFile names the tokens at which texts begin and end.
	GenerationFile = "generation_config.json"
)

// Files lists all of these files, the definition first.
var Files = []string{DefinitionFile, ConfigFile, SpecialsFile, TemplateFile, GenerationFile}

// Beside lists the files that may accompany the definition. They say how text is
// presented to the model, and are copied along with the tokenizer.
var Beside = Files[1:]
