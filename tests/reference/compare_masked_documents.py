"""Trains a small BERT or RoBERTa on samples of several documents, or of one each with padding, beside transformers' class.

usage: compare_masked_documents.py TRAINER FOLDER FAMILY mask|pad      FOLDER is emptied and filled; exit code 77: no transformers

mask: tokens whose documents end with one of them; transformers gets a block-diagonal mask and positions that count from zero
in each document. pad: JSON lines; transformers' tokenizer makes the samples, with special tokens around them, what overflows
as samples of its own, padded, and its model gets the tokenizer's mask and no positions. Masks are drawn here once more.
Losses, gradient norms and final tensors as in compare_families.py.
"""

import json
import math
import sys
from pathlib import Path

import compare_families as families
from compare_families import BATCH, LENGTH, SEED, STEPS, AutoModelForMaskedLM, torch
from transformers import AutoConfig, BertTokenizerFast, RobertaTokenizerFast
from transformers.models.gpt2.tokenization_gpt2 import bytes_to_unicode

END, MASK, NONE = 2, 256, -100  # in samples of tokens only
GRIDS = {name: grid for name, grid in families.GRIDS.items() if name != "3 x 1"}


def draws(least, most, count, seed):
    return torch.randint(least, most, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def make_tokens(folder):
    """Samples as (inputs, mask of visible keys per position, positions); documents of about seven tokens."""
    tokens = draws(END + 1, MASK, STEPS * BATCH * LENGTH + 1, 3)
    ends = draws(0, 7, len(tokens), 4)
    tokens = [END if end == 0 else token for token, end in zip(tokens, ends)]
    (folder / "data.bin").write_bytes(b"".join(token.to_bytes(2, "little") for token in tokens))
    samples = []
    for first in range(0, STEPS * BATCH * LENGTH, LENGTH):
        window, starts = tokens[first:first + LENGTH], [0]
        for t in range(1, LENGTH):
            starts.append(t if window[t - 1] == END else starts[-1])
        starts = torch.tensor(starts)
        samples.append((window, starts[:, None] == starts[None, :], torch.arange(LENGTH) - starts))
    return samples, {END}, MASK, MASK + 1, ["--data", folder / "data.bin", "--token-format", "uint16", "--tokenizer", "none",
                                            "--documents", "mask", "--document-end", END, "--mask-token", MASK]


LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]


def make_tokenizer(folder, family):
    """Tokens are pairs of letters, or for RoBERTa bytes."""
    if family == "bert":
        pairs = [first + second for first in LETTERS for second in LETTERS]
        (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pairs]) + "\n")
        return BertTokenizerFast(vocab_file=str(folder / "vocab.txt"))
    names = ["<s>", "<pad>", "</s>", "<unk>", *bytes_to_unicode().values(), "<mask>"]
    (folder / "vocab.json").write_text(json.dumps({name: number for number, name in enumerate(names)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return RobertaTokenizerFast(vocab_file=str(folder / "vocab.json"), merges_file=str(folder / "merges.txt"))


def make_documents(folder, family):
    """Samples as (inputs, mask of tokens other than padding, None)."""
    tokenizer = make_tokenizer(folder, family)
    texts, letters = [], iter(draws(0, len(LETTERS), 20000, 5))
    for length in draws(1, 40, STEPS * BATCH, 6):
        words = ["".join(LETTERS[next(letters)] for _ in range(2 if family == "bert" else 1)) for _ in range(length)]
        texts.append((" " if family == "bert" else "").join(words))
    (folder / "data.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    made = tokenizer(texts, truncation=True, max_length=LENGTH, padding="max_length", return_overflowing_tokens=True)
    samples = [(tokens, torch.tensor(mask), None) for tokens, mask in zip(made["input_ids"], made["attention_mask"])]
    assert any(mask.sum() < LENGTH for _, mask, _ in samples) and len(samples) > len(texts)
    tokenizer.save_pretrained(folder / "given")
    return samples, set(tokenizer.all_special_ids), tokenizer.mask_token_id, len(tokenizer), [
        "--data", folder / "data.jsonl", "--documents", "pad"]


def masked(tokens, n, filled, specials, mask, vocabulary):
    """A fraction of sample n's tokens is masked, replaced or kept: inputs, and targets."""
    key = families.philox((SEED, 0), (6, 0, 0, 0))[:2]
    drawn = [families.philox(key, (t, 0, n, 0)) for t in range(filled)]
    order = sorted(range(filled), key=lambda t: (tokens[t] in specials, drawn[t][:2]))
    inputs, targets = list(tokens), [NONE] * LENGTH
    for t in order[:max(1, math.floor(0.15 * filled + 0.5))]:
        targets[t] = tokens[t]
        change = (drawn[t][2] >> 8) / 2**24
        if change < 0.9:
            inputs[t] = mask if change < 0.8 else drawn[t][3] * vocabulary >> 32
    return inputs, targets


def make_model(family, vocabulary):
    """Without zeros and ones: an omitted parameter, or one added twice, must change the result."""
    kind, options = families.MASKED_FAMILIES[family]
    torch.manual_seed(7)
    config = AutoConfig.for_model(kind, **options | dict(vocab_size=vocabulary))
    model = AutoModelForMaskedLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_((1.0 if "norm" in name.lower() else 0.0) + 0.08 * torch.randn_like(parameter))
    return model


def train_reference(model, samples, specials, mask, vocabulary):
    padding = model.config.pad_token_id

    def loss_of(step):
        first = step * BATCH
        batch = samples[first:first + BATCH]
        rows = []
        for n, (tokens, sees, _) in enumerate(batch, first):
            filled = LENGTH if sees.dim() == 2 else int(sees.sum())
            rows.append(masked(tokens, n, filled, specials, mask, vocabulary))
            assert padding not in rows[-1][0][:filled], "a token of padding was drawn: choose another seed"
        inputs, targets = (torch.tensor(each) for each in zip(*rows))
        more = dict(attention_mask=torch.stack([sees for _, sees, _ in batch]).long())
        if batch[0][2] is not None:
            zero = padding + 1 if model.config.model_type == "roberta" else 0
            more["position_ids"] = zero + torch.stack([places for _, _, places in batch])
        logits = model(inputs, **more).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=NONE)

    return families.reference_steps(model, loss_of)


def main():
    trainer, folder, family, kind = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    families.prepare(folder)
    samples, specials, mask, vocabulary, data = make_tokens(folder) if kind == "mask" else make_documents(folder, family)
    model = make_model(family, vocabulary)
    model.save_pretrained(folder / "given", safe_serialization=True)
    model = model.double()
    losses, norms = train_reference(model, samples, specials, mask, vocabulary)
    for name, (ranks, flags) in GRIDS.items():
        saved = folder / name.replace(" ", "-")
        lines = families.train(trainer, folder, ranks, flags, saved, folder / f"{name}.jsonl", data)
        opened = AutoModelForMaskedLM.from_pretrained(saved)
        families.check(f"{family}, {kind}, {name}", families.apart(lines, losses, norms, families.sloped(opened, model)))


main()
