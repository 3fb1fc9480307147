# Imports images from winlab's CD into containerd, for containerd.ps1 and load.ps1. Not called by winlab.
. (Join-Path $PSScriptRoot 'common.ps1')

$PinnedLabel = 'io.cri-containerd.pinned=pinned'

function Invoke-Ctr([string[]]$Arguments) {
    return Invoke-Native "$ContainerdFolder\ctr.exe" (@('-n', 'k8s.io') + $Arguments)
}

function Get-Images {
    $images = @{}
    foreach ($line in Invoke-Ctr @('images', 'ls')) {
        $fields = $line -split '\s+'
        if ($fields.Count -ge 3 -and $fields[2] -like 'sha256:*') { $images[$fields[0]] = $fields[2] }
    }
    return $images
}

# The names and digests of an OCI archive's images; none for Docker's older archives, which have no index
function Get-ArchiveImages([string]$Path) {
    $images = @{}
    $names = Invoke-Native 'tar.exe' @('-tf', $Path)
    if ($names -contains 'index.json') {
        $index = (Invoke-Native 'tar.exe' @('-xOf', $Path, 'index.json')) -join "`n"
        foreach ($manifest in (ConvertFrom-Json -InputObject $index).manifests) {
            $name = "$($manifest.annotations.'io.containerd.image.name')"
            if ($name) { $images[$name] = "$($manifest.digest)" }
        }
    }
    return $images
}

# Removes the images that a power cut may have left half unpacked. Returns the digests of those that were imported since
# Windows started and that may not be on the disk yet. containerd flushes its database with each change, but not what it
# unpacks, and would mistake that for complete. The lease of an import, valid for a day, would keep it
function Remove-CutOffImages {
    $start, $digests = @("$(Get-Text $Importing)" -split "`n" | Where-Object { $_ })
    if (-not $digests) { return @() }
    if (Test-Key "$ImportingKey$start") { return @($digests) }
    Write-Progressing 'removing images whose import was cut off'
    $leases = @(Invoke-Ctr @('leases', 'ls', '-q') | Where-Object { $_ })
    if ($leases.Count -gt 0) { Invoke-Ctr (@('leases', 'rm') + $leases) | Out-Null }
    $have = Get-Images
    $names = @($have.Keys | Where-Object { $digests -contains $have[$_] }) # also names that the CRI plug-in adds
    if ($names.Count -gt 0) { Invoke-Ctr (@('images', 'rm', '--sync') + $names) | Out-Null }
    return @()
}

# Imports those of the CD's images that containerd does not have, pinned against the kubelet's clean-up; true if there
# were any. containerd checks every blob against its digest
function Import-Images {
    $folder = Join-Path $Payload 'images'
    $files = @()
    if (Test-Path -LiteralPath $folder) { $files = @(Get-ChildItem -LiteralPath $folder -Filter '*.tar') }
    $noted = @(Remove-CutOffImages)
    $start = [guid]::NewGuid().ToString('N')
    $have = @{}
    if ($files.Count -gt 0) { $have = Get-Images }
    $wanted = @{}
    $changed = $false
    foreach ($file in $files) {
        $inside = Get-ArchiveImages $file.FullName
        $missing = @($inside.Keys | Where-Object { $have[$_] -ne $inside[$_] })
        if ($inside.Count -gt 0 -and $missing.Count -eq 0) { continue }
        Write-Progressing "importing $($file.Name)"
        $noted += @($missing | ForEach-Object { $inside[$_] })
        Set-VolatileKey "$ImportingKey$start"
        Write-Text $Importing ((@($start) + $noted) -join "`n") | Out-Null
        Save-Volume
        try {
            Invoke-Ctr @('images', 'import', '--local', '--label', $PinnedLabel, $file.FullName) | Out-Null
        } catch {
            throw "containerd does not take '$($file.Name)' from winlab's CD: $($_.Exception.Message)"
        }
        foreach ($name in $missing) { $wanted[$name] = $file.Name }
        $changed = $true
    }
    if ($wanted.Count -gt 0) {
        $have = Get-Images
        foreach ($name in $wanted.Keys) {
            if (-not $have.ContainsKey($name)) {
                throw "containerd took '$($wanted[$name])' but has no image '$name': is it for another Windows?"
            }
        }
    }
    if (Test-Path -LiteralPath $Importing) {
        Save-Volume
        Remove-Item -LiteralPath $Importing -Force
    }
    return $changed
}
