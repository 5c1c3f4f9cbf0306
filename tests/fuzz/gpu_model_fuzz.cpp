// SPDX-License-Identifier: GPL-2.0-or-later
// Names of GPU models: any name finds models or none, and a model's full name
// finds that model.
#include "fuzz.hpp"

#include <emuv/gpu_model.hpp>
#include <emuv/profile.hpp>

#include <algorithm>
#include <stdexcept>

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    const auto text = fuzz::text_of(data, size);
    for (const auto *model : emuv::find_gpu_models(text)) {
        const auto found = emuv::find_gpu_models(model->full_name());
        fuzz::must(std::find(found.begin(), found.end(), model) != found.end(),
                   "a model is found by its full name");
    }
    fuzz::must(emuv::same_gpu_model(text, text), "a name is its own");
    const auto shown = emuv::find_gpu_models(emuv::gpu_display_name(text));
    for (const auto *model : emuv::find_gpu_models(text))
        fuzz::must(std::find(shown.begin(), shown.end(), model) != shown.end(),
                   "a model is found by what it is shown as");
    try {
        emuv::check_gpu_model_label(text);
        fuzz::must(!text.empty() && text.size() < EMUV_MODEL_LEN,
                   "a label that passes fits the driver's");
    } catch (const std::invalid_argument &) {
        return 0;
    }
    return 0;
}
