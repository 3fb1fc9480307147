# Writes the files and registry values that add-ons give this node. Settings: files, registry. Removes what an earlier
# run has written and the settings do not name any more.
. (Join-Path $PSScriptRoot 'common.ps1')
$settings = Read-Settings @($input)

# Write-Text would not notice a byte order mark
function Test-Same([string]$Path, [string]$Text) {
    return (Get-Sha256 $Path) -eq (Get-TextSha256 $Text)
}

function Write-Given([string[]]$Files, $Values) {
    $rows = @($Values.Keys | Sort-Object | ForEach-Object {
        @{ key = "$($Values[$_].key)"; name = "$($Values[$_].name)" }
    })
    $record = @{ files = @($Files | Sort-Object -Unique); registry = $rows }
    Write-Text $GivenRecord (ConvertTo-Json -InputObject $record -Compress -Depth 4) | Out-Null
}

function Set-RegistryValue($Row) {
    $path = "$($Row.key)" -replace '^HKLM\\', 'HKLM:\'
    # New-Item -Force would empty a key that exists
    if (-not (Test-Path -Path $path)) { New-Item -Path $path -Force | Out-Null }
    $name = "$($Row.name)"
    switch ("$($Row.type)") {
        'string' { Set-ItemProperty -Path $path -Name $name -Value "$($Row.data)" -Type String }
        'dword' { Set-ItemProperty -Path $path -Name $name -Value ([Convert]::ToInt32("$($Row.data)", 16)) -Type DWord }
        'multistring' {
            Set-ItemProperty -Path $path -Name $name -Value ([string[]]("$($Row.data)" -split "`n")) -Type MultiString
        }
    }
}

Invoke-Step {
    $files = @{}
    if ($settings.files) { foreach ($path in $settings.files.Keys) { $files[$path] = "$($settings.files[$path])" } }
    foreach ($path in $files.Keys) {
        if ($path -notmatch '^[A-Za-z]:\\[^/:*?"<>|]+$' -or $path -match '\\\.\.?(\\|$)') {
            throw "settings.files: '$path' is no absolute path."
        }
    }
    $values = @{}
    foreach ($row in @($settings.registry | Where-Object { $_ })) {
        $place = "$($row.key)\$($row.name)"
        if ("$($row.key)" -notmatch '^HKLM\\[^*?]+$' -or -not "$($row.name)") {
            throw "settings.registry: '$place' is no value below HKLM."
        }
        if (@('string', 'dword', 'multistring') -notcontains "$($row.type)") {
            throw "settings.registry: '$place' has the type '$($row.type)', not string, dword or multistring."
        }
        if ("$($row.type)" -eq 'dword' -and "$($row.data)" -notmatch '^[0-9a-f]{8}$') {
            throw "settings.registry: '$place' is '$($row.data)', not eight hexadecimal digits."
        }
        $values[$place] = $row
    }
    Set-FolderAcl $WinlabFolder $ProgramsFolder
    $before = Get-Given
    $old = @{}
    foreach ($row in @($before.registry | Where-Object { $_ })) { $old["$($row.key)\$($row.name)"] = $row }
    # recorded before anything is written, so that nothing is forgotten
    $all = $old.Clone()
    foreach ($place in $values.Keys) { $all[$place] = $values[$place] }
    $paths = @($before.files | Where-Object { $_ })
    Write-Given ($paths + @($files.Keys)) $all

    $changed = $false
    foreach ($path in @($files.Keys | Sort-Object)) {
        if (Test-Same $path $files[$path]) { continue }
        if (Test-Path -LiteralPath $path) { Write-Progressing "$path differs: it is written again" }
        Set-Text $path $files[$path]
        $changed = $true
    }
    foreach ($path in $paths) {
        if (-not $files.ContainsKey($path) -and (Test-Path -LiteralPath $path)) {
            Write-Progressing "$path is removed: nothing asks for it any more"
            Remove-Item -LiteralPath $path -Force
            $changed = $true
        }
    }
    foreach ($place in @($values.Keys | Sort-Object)) {
        $row = $values[$place]
        $there = Get-RegistryText $row.key $row.name
        if ($there -ceq "$($row.type) $($row.data)") { continue }
        if ($there) { Write-Progressing "$place differs: it is set again" }
        Set-RegistryValue $row
        $changed = $true
    }
    foreach ($place in $old.Keys) {
        $row = $old[$place]
        if (-not $values.ContainsKey($place) -and (Get-RegistryText $row.key $row.name)) {
            Write-Progressing "$place is removed: nothing asks for it any more"
            Remove-ItemProperty -Path ("$($row.key)" -replace '^HKLM\\', 'HKLM:\') -Name "$($row.name)" -Force
            $changed = $true
        }
    }
    Write-Given @($files.Keys) $values
    return @{ changed = [bool]$changed }
}
