# Windows' own updates. Settings: without, the titles of those to leave out. While the result says "restart", Windows
# must be restarted and this script run again.
# Windows Update refuses remote sessions, so a task in the account SYSTEM does the work, and this script reports it.
. (Join-Path $PSScriptRoot 'common.ps1')
$settings = Read-Settings @($input)

$Task = 'winlab-updates'
$Script = "$WinlabFolder\updates.ps1"
$Log = "$WinlabFolder\updates.log"
$Outcome = "$WinlabFolder\updates.json"
$Without = "$WinlabFolder\updates-without.txt"

# What the task runs. Result code 2: it went well (OperationResultCode of the Windows Update Agent). BrowseOnly=0 leaves
# out previews and what else is optional. The names of categories are in Windows' language, their IDs are not: upgrades
# to another Windows, and drivers
$TaskScript = @'
$ErrorActionPreference = 'Stop'
function Write-Line([string]$Text) { Add-Content -LiteralPath 'C:\winlab\updates.log' -Value $Text -Encoding ASCII }
$result = @{ installed = @(); failed = @(); restart = $false; error = '' }
try {
    Set-Service -Name 'wuauserv' -StartupType Manual
    $session = New-Object -ComObject 'Microsoft.Update.Session'
    Write-Line 'looking for updates'
    $found = $session.CreateUpdateSearcher().Search("IsInstalled=0 and IsHidden=0 and BrowseOnly=0 and Type='Software'")
    $wanted = New-Object -ComObject 'Microsoft.Update.UpdateColl'
    $unwanted = '3689bdc8-b205-4af4-8d4a-a63924c5e9d5', 'ebfc1fc5-71a4-4f7b-9aca-3b9a503104a0'
    $without = @(Get-Content -LiteralPath 'C:\winlab\updates-without.txt' -Encoding UTF8)
    foreach ($update in $found.Updates) {
        if ($update.InstallationBehavior.CanRequestUserInput -or $without -contains $update.Title) { continue }
        $categories = @(foreach ($category in $update.Categories) { $category.CategoryID })
        if (@($categories | Where-Object { $unwanted -contains $_ }).Count -gt 0) { continue }
        if (-not $update.EulaAccepted) { $update.AcceptEula() }
        $wanted.Add($update) | Out-Null
    }
    if ($wanted.Count -gt 0) {
        Write-Line "downloading $($wanted.Count) updates"
        $downloader = $session.CreateUpdateDownloader()
        $downloader.Updates = $wanted
        $downloader.Download() | Out-Null
        for ($i = 0; $i -lt $wanted.Count; $i++) {
            $update = $wanted.Item($i)
            Write-Line "installing $($update.Title)"
            $one = New-Object -ComObject 'Microsoft.Update.UpdateColl'
            $one.Add($update) | Out-Null
            $installer = $session.CreateUpdateInstaller()
            $installer.Updates = $one
            $done = $installer.Install()
            if ($done.RebootRequired) { $result.restart = $true }
            $list = if ($done.ResultCode -eq 2) { 'installed' } else { 'failed' }
            $result[$list] += "$($update.Title)"
        }
    }
} catch {
    $result.error = "$($_.Exception.Message)"
}
# under another name first: half a file is no JSON
ConvertTo-Json -InputObject $result | Set-Content -LiteralPath 'C:\winlab\updates.json.new' -Encoding UTF8
Move-Item -LiteralPath 'C:\winlab\updates.json.new' -Destination 'C:\winlab\updates.json' -Force
'@

Invoke-Step {
    New-Folder $WinlabFolder
    Remove-Item -Force -ErrorAction SilentlyContinue -Path $Log, $Outcome
    Set-Text $Without (@($settings.without) -join "`n")
    Write-Text $Script $TaskScript | Out-Null
    $action = New-ScheduledTaskAction -Execute 'powershell.exe' `
        -Argument "-NoProfile -NonInteractive -ExecutionPolicy Bypass -File $Script"
    Register-ScheduledTask -TaskName $Task -Action $action -User 'SYSTEM' -RunLevel Highest -Force | Out-Null
    Start-ScheduledTask -TaskName $Task
    $told = 0
    $queued = 0
    while (-not (Test-Path -LiteralPath $Outcome)) {
        Start-Sleep -Seconds 5
        $lines = @(Get-Content -LiteralPath $Log -Encoding UTF8 -ErrorAction SilentlyContinue)
        foreach ($line in $lines | Select-Object -Skip $told) { Write-Progressing $line }
        $told = $lines.Count
        $state = "$((Get-ScheduledTask -TaskName $Task).State)"
        if ($state -eq 'Running') { continue }
        # right after Windows' first start a task may wait for a while
        if ($state -eq 'Queued' -and $queued -lt 60) { $queued += 5; continue }
        # between its end and a look at the result there may be a moment
        Start-Sleep -Seconds 5
        if (-not (Test-Path -LiteralPath $Outcome)) { throw "The task for updates ended without a result ($state)." }
    }
    Unregister-ScheduledTask -TaskName $Task -Confirm:$false
    $result = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($Outcome))
    Remove-Item -Force -ErrorAction SilentlyContinue -Path $Script, $Log, $Outcome, $Without
    if ($result.error) { throw "Windows Update: $($result.error)" }
    return @{ installed = @($result.installed); failed = @($result.failed); restart = [bool]$result.restart }
}
