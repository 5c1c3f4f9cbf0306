-- SPDX-License-Identifier: GPL-2.0-or-later
-- For Slurm's JobSubmitPlugins=lua: --emuv-vram asks for that many GiB of
-- gres/emuv_vram. A SPANK plugin alone cannot: it has no say in what a job asks for.
--
-- Without a script of its own a site copies this file to job_submit.lua, beside its
-- slurm.conf. Otherwise its script begins with dofile() of this file, and its
-- slurm_job_submit calls emuv_job_submit(job_desc).

function emuv_job_submit(job_desc)
    local gib
    for _, variable in pairs(job_desc.spank_job_env or {}) do
        gib = string.match(variable, "^SPANK_EMUV_VRAM_GIB=(%d+)$") or
            string.match(variable, "^EMUV_VRAM_GIB=(%d+)$") or gib
    end
    if not gib then
        return
    end
    -- The option takes the place of emuv_vram in --gres, and leaves the rest.
    local wanted = {}
    for word in string.gmatch(job_desc.tres_per_node or "", "[^,]+") do
        if not string.match(word, "^gres[:/]emuv_vram") and
            not string.match(word, "^emuv_vram") then
            wanted[#wanted + 1] = word
        end
    end
    wanted[#wanted + 1] = "gres:emuv_vram:" .. gib
    job_desc.tres_per_node = table.concat(wanted, ",")
end

function slurm_job_submit(job_desc, part_list, submit_uid)
    emuv_job_submit(job_desc)
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end

return slurm.SUCCESS
