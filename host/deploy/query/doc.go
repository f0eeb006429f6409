// Package query asks a trained model: questions of evaluation tasks, prompts of RULER, messages of a conversation, and the
// log-probabilities of given sequences. It says how the model's tokenizer begins and ends a text, what ends an answer, and by
// which name the answers of this model are told from those of others. What is asked and how answers are judged is the business
// of host/deploy/tasks and host/deploy/ruler.
package query
