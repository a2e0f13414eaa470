#!/usr/bin/env python3
"""Makes a language model of half a megabyte for llama.cpp's server: the llama architecture, random
weights. It knows nothing and answers with word salad, but it tokenises, streams and counts as a large
one does.

    make_model.py OUT.gguf

The same bytes on every call. Needs gguf (which brings numpy).
"""
import sys

import gguf
import numpy

CONTEXT = 8192
WIDTH, HEADS, LAYERS = 64, 4, 2
WIDTH_INNER = 2 * WIDTH
SEED = 20261130
# Words that English text is half made of, then every sign: a prompt costs less than a token a letter.
WORDS = ('the and for you that with this have from they will would there what about which when make '
         'like time just know take people into year good some could them see other than then now look '
         'only come over think also back after use two how our work first well way even new want because '
         'any these give day most question answer number explain river list name short long').split()
SIGNS = [chr(code) for code in range(33, 127)]
SPACE = '\u2581'        # how SentencePiece writes a blank
# Messages one after another; the answer begins after the last role.
CHAT_TEMPLATE = ("{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }}\n"
                 "{% endfor %}<assistant>")


def tokens():
    """[(text, type, score)]; llama.cpp expects the three control tokens first, then the bytes."""
    kind = gguf.TokenType
    listed = [('<unk>', kind.UNKNOWN, 0.0), ('<s>', kind.CONTROL, 0.0), ('</s>', kind.CONTROL, 0.0)]
    listed += [(f'<0x{byte:02X}>', kind.BYTE, 0.0) for byte in range(256)]
    # A merge happens only where both halves and the whole are tokens, the best score first: so every
    # beginning of a word has to be one, too.
    starts = {SPACE + word[:length] for word in WORDS for length in range(1, len(word) + 1)}
    whole = sorted(starts, key=lambda text: (-len(text), text))
    listed += [(text, kind.NORMAL, -float(rank)) for rank, text in enumerate(whole, 1)]
    singles = [SPACE, '\n', *SIGNS]
    return listed + [(text, kind.NORMAL, -1000.0 - rank) for rank, text in enumerate(singles)]


def write(path):
    """Writes the file; returns the number of tokens the model knows."""
    vocabulary = tokens()
    silent = 3 + 256            # control tokens and bytes, which show no text
    draw = numpy.random.default_rng(SEED)

    def weights(rows, columns):
        return draw.normal(0, 0.3, (rows, columns)).astype(numpy.float32)

    model = gguf.GGUFWriter(path, 'llama')
    model.add_name('tiny')
    model.add_file_type(gguf.LlamaFileType.ALL_F32)
    model.add_context_length(CONTEXT)
    model.add_embedding_length(WIDTH)
    model.add_feed_forward_length(WIDTH_INNER)
    model.add_block_count(LAYERS)
    model.add_head_count(HEADS)
    model.add_head_count_kv(HEADS)
    model.add_rope_dimension_count(WIDTH // HEADS)
    model.add_layer_norm_rms_eps(1e-5)
    model.add_vocab_size(len(vocabulary))
    model.add_tokenizer_model('llama')
    model.add_token_list([text.encode() for text, _, _ in vocabulary])
    model.add_token_types([kind for _, kind, _ in vocabulary])
    model.add_token_scores([score for _, _, score in vocabulary])
    model.add_unk_token_id(0)
    model.add_bos_token_id(1)
    model.add_eos_token_id(2)
    model.add_add_bos_token(True)
    model.add_chat_template(CHAT_TEMPLATE)

    level = numpy.ones(WIDTH, numpy.float32)
    model.add_tensor('token_embd.weight', weights(len(vocabulary), WIDTH))
    for layer in range(LAYERS):
        for part in ('attn_q', 'attn_k', 'attn_v', 'attn_output'):
            model.add_tensor(f'blk.{layer}.{part}.weight', weights(WIDTH, WIDTH))
        model.add_tensor(f'blk.{layer}.attn_norm.weight', level)
        for part in ('ffn_gate', 'ffn_up'):
            model.add_tensor(f'blk.{layer}.{part}.weight', weights(WIDTH_INNER, WIDTH))
        model.add_tensor(f'blk.{layer}.ffn_down.weight', weights(WIDTH, WIDTH_INNER))
        model.add_tensor(f'blk.{layer}.ffn_norm.weight', level)
    model.add_tensor('output_norm.weight', level)
    output = weights(len(vocabulary), WIDTH)
    output[:silent] *= 0.01     # improbable: nearly every token of an answer can be seen
    model.add_tensor('output.weight', output)

    model.write_header_to_file()
    model.write_kv_data_to_file()
    model.write_tensors_to_file()
    model.close()
    return len(vocabulary)


if __name__ == '__main__':
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print(f'{sys.argv[1]}: {write(sys.argv[1])} tokens')
